export const SDKS = [];
export const trySdk = () => ({ checks: {} });
