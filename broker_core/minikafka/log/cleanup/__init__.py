"""The log cleaner (``cleanup.policy=compact``), and the delayed deletion of files.

``cleaner_manager`` chooses the log to clean, ``cleaner`` cleans it. Retention by age and size is in
``log.retention``, because the settings of a log name its policy. Imports ``log.log`` and below.
"""
