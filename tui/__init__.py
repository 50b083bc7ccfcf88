"""The terminal monitor: pictures in, screens out.

Decides nothing and asks nobody: `view` has the pictures, the words and all IO. Folders mirror the
screen: `screens/` are pages, `widgets/` what stands on them.
"""
