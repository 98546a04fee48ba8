# Gates a unit of a shell suite on a capability of the host; see capgate's docs/capabilities.md. Source this file, and begin
# the unit, which is a script or a subshell of its own, with
#
#     capability_require docker test_images
#
# When the capability is declared absent the unit ends here with 75, listed as skipped. When nobody can tell it ends with 125.
capability_require() {
    "${CAPGATE:-capgate}" capability require "$1" --unit "$2" || exit
}
