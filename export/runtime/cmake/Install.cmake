# `cmake --install`, and `cpack` as an archive: the libraries, their headers, the program, and the package that find_package(seqlab_runtime) finds, with
# COMPONENTS proof for seqlab::seqlab_proof.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/seqlab_runtime)
# The shared libraries go along, the system's too, since another system may lack them; and static ones that are not
# the system's, for programs that link ours.
set(own ${CMAKE_INSTALL_LIBDIR}/seqlab_runtime)

set_target_properties(seqlab-run PROPERTIES INSTALL_RPATH "$ORIGIN/../${own}")
foreach(library IN ITEMS seqlab_runtime seqlab_proof)
  set_target_properties(${library} PROPERTIES INSTALL_RPATH "$ORIGIN/seqlab_runtime")
  install(TARGETS ${library} EXPORT ${library})
  install(EXPORT ${library} NAMESPACE seqlab:: DESTINATION ${package} FILE ${library}Targets.cmake)
endforeach()
install(TARGETS seqlab-run)
install(DIRECTORY include/seqlab DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
configure_package_config_file(cmake/seqlab_runtimeConfig.cmake.in seqlab_runtimeConfig.cmake
  INSTALL_DESTINATION ${package} PATH_VARS own)
write_basic_package_version_file(seqlab_runtimeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/seqlab_runtimeConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/seqlab_runtimeConfigVersion.cmake cmake/Dependencies.cmake DESTINATION ${package})
foreach(name IN ITEMS sentencepiece crypto minizip z onig utf8proc)
  get_filename_component(file ${SEQLAB_LIBRARY_${name}} REALPATH)
  string(FIND "${SEQLAB_LIBRARY_${name}}" "${SEQLAB_DEPENDENCIES}/" place)
  if(file MATCHES "/(lib[a-z0-9_]+\\.so\\.[0-9]+)[^/]*$")
    install(FILES ${file} DESTINATION ${own} RENAME ${CMAKE_MATCH_1})
  elseif(place EQUAL 0)
    get_filename_component(base ${SEQLAB_LIBRARY_${name}} NAME)
    install(FILES ${file} DESTINATION ${own} RENAME ${base})
  endif()
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/../../LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
set(CPACK_GENERATOR TGZ)
include(CPack)
