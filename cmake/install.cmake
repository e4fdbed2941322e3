# Installation: the library, its headers, and the files for find_package(hookline) and pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# A wheel cannot contain symbolic links, so it has only the versioned library, under a fixed path.
set(namelink)
if(SKBUILD)
  set(CMAKE_INSTALL_LIBDIR lib)
  set(CMAKE_INSTALL_INCLUDEDIR include)
  set(namelink NAMELINK_SKIP)
endif()
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hookline)

install(TARGETS hookline EXPORT hookline-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${namelink}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(transport hookline_gloo hookline_mpi)
  if(TARGET ${transport})
    install(TARGETS ${transport} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()
install(DIRECTORY include/hookline DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT hookline-targets NAMESPACE hookline:: DESTINATION ${package_dir})

configure_package_config_file(cmake/hookline-config.cmake.in ${PROJECT_BINARY_DIR}/hookline-config.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
# While the version is 0.x, every minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hookline-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hookline-config.cmake ${PROJECT_BINARY_DIR}/hookline-config-version.cmake
  DESTINATION ${package_dir})

# A wheel has no libhookline.so for -lhookline; its CMake files contain the versioned name.
if(NOT SKBUILD)
  file(RELATIVE_PATH to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  configure_file(cmake/hookline.pc.in ${PROJECT_BINARY_DIR}/hookline.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/hookline.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
