# Installed tree, which may be moved anywhere:
#   bin/kvferry  include/kvferry/*.h  lib/libkvferry.so*  lib/cmake/kvferry  lib/pkgconfig/kvferry.pc
#   lib/kvferry/libuc*.so.0 and lib/kvferry/ucx/*.so.0   our UCX, which looks for modules beside itself;
#                                                        none of it with the system's UCX
include(CMakePackageConfigHelpers)

file(RELATIVE_PATH kvf_lib_from_bin
    "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
file(RELATIVE_PATH kvf_prefix_from_pc
    "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
set(kvf_cli_rpath "\$ORIGIN/${kvf_lib_from_bin}")
if(NOT KVFERRY_SYSTEM_UCX)
    list(APPEND kvf_cli_rpath "\$ORIGIN/${kvf_lib_from_bin}/kvferry")
endif()
set_target_properties(kvferry-cli PROPERTIES INSTALL_RPATH "${kvf_cli_rpath}")

install(TARGETS kvferry kvferry-cli
    EXPORT kvferryTargets
    RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/runtime/include/kvferry"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/launch/models" "${PROJECT_SOURCE_DIR}/launch/topologies"
        "${PROJECT_SOURCE_DIR}/launch/settings"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/kvferry" FILES_MATCHING PATTERN "*.yaml")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/README.md"
    DESTINATION "${CMAKE_INSTALL_DOCDIR}")

install(EXPORT kvferryTargets
    NAMESPACE kvferry::
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/kvferry"
)
configure_package_config_file(
    "${CMAKE_CURRENT_LIST_DIR}/kvferryConfig.cmake.in"
    "${CMAKE_CURRENT_BINARY_DIR}/kvferryConfig.cmake"
    INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/kvferry"
)
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/kvferryConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
configure_file("${CMAKE_CURRENT_LIST_DIR}/kvferry.pc.in" "${CMAKE_CURRENT_BINARY_DIR}/kvferry.pc" @ONLY)
install(FILES
    "${CMAKE_CURRENT_BINARY_DIR}/kvferryConfig.cmake"
    "${CMAKE_CURRENT_BINARY_DIR}/kvferryConfigVersion.cmake"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/kvferry"
)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/kvferry.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

if(NOT KVFERRY_SYSTEM_UCX)
    set_target_properties(kvferry PROPERTIES INSTALL_RPATH "\$ORIGIN/kvferry")
    set(kvf_ucx_destination "${CMAKE_INSTALL_LIBDIR}/kvferry")
    # Under the name that the loader asks for; what lies there under it may be a link.
    foreach(lib ucm ucs uct ucp)
        file(REAL_PATH "${UCX_LIBRARY_DIR}/lib${lib}.so.0" file)
        install(PROGRAMS "${file}" DESTINATION "${kvf_ucx_destination}" RENAME "lib${lib}.so.0")
    endforeach()
    file(GLOB modules RELATIVE "${UCX_LIBRARY_DIR}/ucx" "${UCX_LIBRARY_DIR}/ucx/*.so.0")
    foreach(module IN LISTS modules)
        file(REAL_PATH "${UCX_LIBRARY_DIR}/ucx/${module}" file)
        install(PROGRAMS "${file}" DESTINATION "${kvf_ucx_destination}/ucx" RENAME "${module}")
    endforeach()
    if(EXISTS "${UCX_LIBRARY_DIR}/../LICENSE")
        install(FILES "${UCX_LIBRARY_DIR}/../LICENSE"
            DESTINATION "${CMAKE_INSTALL_DOCDIR}" RENAME LICENSE.ucx)
    endif()
endif()
