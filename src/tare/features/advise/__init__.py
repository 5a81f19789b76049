"""What an application uses: how it is found, watched and counted, and the file that says so."""
