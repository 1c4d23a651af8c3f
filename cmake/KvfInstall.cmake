# Install rules are added with the package files.
