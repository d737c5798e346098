"""English texts from which make.py learns how the words of a text make up its meaning: descriptions and names of
operations of Google's and Amazon's interfaces, and definitions and examples of WordNet.

The texts are read from packages of the registries and are not kept.
"""

import gzip
import html
import json
import random
import re
import tarfile
import zipfile


def sample(google, amazon, wordnet, count):
    """As many texts of the three packages, chosen by chance, but always the same."""
    random.seed(1)
    found = {}
    for text in [*of_google(google), *of_amazon(amazon), *of_wordnet(wordnet)]:
        if len(text) >= 4:
            found.setdefault(text.lower(), text)
    texts = list(found.values())
    random.seed(3)
    random.shuffle(texts)
    return texts[:count]


def beginning(text, sentences=2):
    """The first sentences of a description, without mark-up."""
    text = html.unescape(re.sub(r"<[^>]+>", " ", text))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\s+", " ", re.sub(r"https?://\S+", " ", text)).strip()
    return " ".join(re.split(r"(?<=[.!?])\s", text)[:sentences])[:260]


def spaced(name):
    return re.sub(r"[_.-]", " ", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name))


def of_google(wheel):
    archive = zipfile.ZipFile(wheel)
    interfaces = {}
    for name in archive.namelist():
        if "/documents/" in name and name.endswith(".json"):
            document = json.loads(archive.read(name))
            if document.get("name"):
                versions = interfaces.setdefault(document["name"], [])
                versions.append((not document.get("preferred", False), name, document))
    for name, versions in interfaces.items():
        _, _, document = min(versions, key=lambda version: version[:2])
        if document.get("description"):
            yield beginning(document["description"])
        yield from of_resources(document.get("title", name), document.get("resources", {}))


def of_resources(title, resources):
    for noun, resource in resources.items():
        for verb, method in resource.get("methods", {}).items():
            yield f"{spaced(verb)} {spaced(noun)}".lower()
            yield f"{title} {spaced(verb)} {spaced(noun)}"
            if method.get("description"):
                yield beginning(method["description"])
            for parameter in list(method.get("parameters", {}).values())[:3]:
                if parameter.get("description") and random.random() < 0.15:
                    yield beginning(parameter["description"], 1)
        yield from of_resources(title, resource.get("resources", {}))


def of_amazon(wheel):
    archive = zipfile.ZipFile(wheel)
    services = {}
    for name in archive.namelist():
        found = re.match(r"botocore/data/([^/]+)/([^/]+)/service-2.json(.gz)?$", name)
        if found:
            services.setdefault(found[1], []).append((found[2], name))
    for versions in services.values():
        _, name = max(versions)
        content = archive.read(name)
        service = json.loads(gzip.decompress(content) if name.endswith("gz") else content)
        if service.get("documentation"):
            yield beginning(service["documentation"])
        for operation, about in service["operations"].items():
            yield spaced(operation).lower()
            if about.get("documentation"):
                yield beginning(about["documentation"])


def of_wordnet(package):
    archive = tarfile.open(package)
    for member in archive.getmembers():
        if not re.search(r"/data\.(noun|verb|adj|adv)$", member.name):
            continue
        for line in archive.extractfile(member).read().decode("latin1").splitlines():
            if line.startswith("  "):
                continue
            entry, _, gloss = line.partition(" | ")
            fields = entry.split(" ")
            words = [fields[4 + 2 * at].replace("_", " ") for at in range(int(fields[3], 16))]
            gloss = gloss.strip()
            yield ", ".join(words[:3]) + ": " + gloss.split('; "')[0][:160]
            for example in re.findall(r'"([^"]+)"', gloss):
                yield example[:160]
            if len(words) > 1:
                yield " ".join(words[:4])
