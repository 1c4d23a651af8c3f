# Finds UCX by its headers and libraries; the .pc and CMake files that UCX installs are not used,
# since those in relocated trees name the prefix of their build machine.
#
# In:  KVFERRY_SYSTEM_UCX  take the compiler's default paths, version 1.13 or newer
#      KVFERRY_UCX_ROOT, then the environment's UCX_ROOT, then .deps/ucx: a prefix, 1.22 or newer
# Out: UCX_VERSION, UCX_FOUND, UCX_LIBRARY_DIR, targets UCX::ucp and UCX::ucs
set(ucx_paths)
if(KVFERRY_SYSTEM_UCX)
    if(KVFERRY_UCX_ROOT)
        message(FATAL_ERROR "KVFERRY_SYSTEM_UCX and KVFERRY_UCX_ROOT exclude each other")
    endif()
    set(ucx_root "")
    set(ucx_version_min 1.13)
    set(ucx_hint "install the system's UCX headers (Debian and Ubuntu: libucx-dev)")
else()
    if(KVFERRY_UCX_ROOT)
        set(ucx_root "${KVFERRY_UCX_ROOT}")
    elseif(DEFINED ENV{UCX_ROOT} AND NOT "$ENV{UCX_ROOT}" STREQUAL "")
        set(ucx_root "$ENV{UCX_ROOT}")
    else()
        set(ucx_root "${PROJECT_SOURCE_DIR}/.deps/ucx")
    endif()
    get_filename_component(ucx_root "${ucx_root}" ABSOLUTE)
    set(ucx_version_min 1.22)
    set(ucx_hint "run launch/deps, or give -DKVFERRY_UCX_ROOT=DIR or -DKVFERRY_SYSTEM_UCX=ON")
    set(ucx_paths PATHS "${ucx_root}" NO_DEFAULT_PATH)
endif()

# A build folder that is configured again with another UCX must look again.
if(NOT "${ucx_root}" STREQUAL "${UCX_ROOT_OF_CACHE}")
    unset(UCX_INCLUDE_DIR CACHE)
    unset(UCX_ucp_LIBRARY CACHE)
    unset(UCX_ucs_LIBRARY CACHE)
    set(UCX_ROOT_OF_CACHE "${ucx_root}" CACHE INTERNAL "prefix that the UCX_ entries belong to")
endif()
find_path(UCX_INCLUDE_DIR ucp/api/ucp_version.h ${ucx_paths} PATH_SUFFIXES include)
find_library(UCX_ucp_LIBRARY ucp ${ucx_paths} PATH_SUFFIXES lib lib64)
find_library(UCX_ucs_LIBRARY ucs ${ucx_paths} PATH_SUFFIXES lib lib64)
mark_as_advanced(UCX_INCLUDE_DIR UCX_ucp_LIBRARY UCX_ucs_LIBRARY)

if(UCX_INCLUDE_DIR)
    file(STRINGS "${UCX_INCLUDE_DIR}/ucp/api/ucp_version.h" ucx_line
         REGEX "^#define[ \t]+UCP_API_VERSION[ \t]+UCP_VERSION\\([0-9]+, *[0-9]+\\)")
    if(ucx_line MATCHES "UCP_VERSION\\(([0-9]+), *([0-9]+)\\)")
        set(UCX_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
    endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(UCX
    REQUIRED_VARS UCX_ucp_LIBRARY UCX_ucs_LIBRARY UCX_INCLUDE_DIR UCX_VERSION
    VERSION_VAR UCX_VERSION
    REASON_FAILURE_MESSAGE "looked in ${ucx_root}: ${ucx_hint}"
)
if(UCX_FOUND AND UCX_VERSION VERSION_LESS ucx_version_min)
    message(FATAL_ERROR "UCX ${UCX_VERSION} in ${UCX_INCLUDE_DIR} is older than ${ucx_version_min}: ${ucx_hint}")
endif()

if(UCX_FOUND AND NOT TARGET UCX::ucp)
    foreach(lib ucs ucp)
        add_library(UCX::${lib} SHARED IMPORTED)
        set_target_properties(UCX::${lib} PROPERTIES
            IMPORTED_LOCATION "${UCX_${lib}_LIBRARY}"
            INTERFACE_INCLUDE_DIRECTORIES "${UCX_INCLUDE_DIR}"
        )
    endforeach()
    target_link_libraries(UCX::ucp INTERFACE UCX::ucs)
    get_filename_component(UCX_LIBRARY_DIR "${UCX_ucp_LIBRARY}" DIRECTORY)
endif()
