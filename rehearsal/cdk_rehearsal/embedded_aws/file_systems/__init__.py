"""File systems that nodes mount: EFS and FSx for Lustre."""
