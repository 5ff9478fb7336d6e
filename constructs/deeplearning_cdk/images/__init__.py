"""Machine images: definition, choice by instance type, and the pin of the AMI id."""
