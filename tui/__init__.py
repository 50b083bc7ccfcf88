"""The terminal monitor: snapshots in, screens out.

Decides nothing. All its IO is in `source`; `snapshot` holds the picture that the screens draw;
folders mirror the screen: `screens/` are pages, `widgets/` what stands on them.
"""
