"""Administration of a store in a file: users, webhooks, backups and health checks, beside a running server."""
