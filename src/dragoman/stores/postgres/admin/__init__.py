"""Administration of a store in PostgreSQL: users, webhooks, backups and health checks, beside its servers."""
