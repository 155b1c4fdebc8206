"""Local sites that behave like the marketplaces: made from what is documented of them, with made-up servers.

They page by links, by buttons and by scrolling, render with scripts after the page has loaded, hide configurations
behind tabs, dialogs and folds, and hold entries that are gone, empty or garbled.
"""
