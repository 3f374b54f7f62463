"""Task stores, push config stores and push senders of the user's own, in place of those of this package."""
