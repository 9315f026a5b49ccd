"""Pure rules: keys, names, identity, the entry format, outcomes and errors.

Nothing here touches a file, a device, a clock or a framework.
"""
