"""The ASGI app, the cards, the settings; `build` alone names concrete parts."""
