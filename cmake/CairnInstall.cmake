# What `cmake --install` and the Debian packages of `cpack -G DEB` hold. A component is a package:
#
#   cli        cairn            the command line, its completion and manual pages, docs, examples, scripts
#   daemons    cairn-daemons    coordinator, ps, worker, their units and manual pages, the user cairn; cairn-replay
#   python     python3-cairn    the Python module, where it is built
include(GNUInstallDirs)
cmake_policy(SET CMP0087 NEW)  # install(CODE) knows where programs are
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # what is packed is what was built; a missing program ends the installation
set(doc ${CMAKE_INSTALL_DATADIR}/doc/cairn)

# As files: with their search path, ../lib first, they find libraries and plugins as those of a bundle do.
install(PROGRAMS $<TARGET_FILE:cairn> DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cli)
install(PROGRAMS deploy/drain.sh DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME cairn-drain COMPONENT cli)
install(PROGRAMS deploy/make_certs.sh DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME cairn-make-certs COMPONENT cli)
install(DIRECTORY docs examples DESTINATION ${doc} COMPONENT cli)
install(FILES README.md DESTINATION ${doc} COMPONENT cli)
install(DIRECTORY deploy/monitoring DESTINATION ${doc} COMPONENT cli PATTERN "*.py" EXCLUDE)

foreach(role coordinator ps worker)
  install(PROGRAMS $<TARGET_FILE:cairn-${role}> DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT daemons)
  install(FILES deploy/systemd/cairn-${role}.service DESTINATION lib/systemd/system COMPONENT daemons)
endforeach()
install(PROGRAMS $<TARGET_FILE:cairn-replay> DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT daemons)  # of their libraries
install(FILES deploy/systemd/README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/cairn-daemons COMPONENT daemons)

# What the programs print about themselves.
function(cairn_install_pages component)
  list(JOIN ARGN " " programs)
  install(CODE "
    execute_process(COMMAND \"${CMAKE_SOURCE_DIR}/deploy/man_pages.sh\" \"$<TARGET_FILE_DIR:cairn>\"
                    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/man\" ${programs}
                    RESULT_VARIABLE result)
    if(result)
      message(WARNING \"no manual pages are installed: see above\")
    endif()" COMPONENT ${component})
endfunction()
function(cairn_install_completion shell path)
  install(CODE "
    set(file \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/${path}\")
    get_filename_component(folder \"\${file}\" DIRECTORY)
    file(MAKE_DIRECTORY \"\${folder}\")
    execute_process(COMMAND \"$<TARGET_FILE:cairn>\" completion ${shell} OUTPUT_FILE \"\${file}\"
                    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT cli)
endfunction()
cairn_install_pages(cli cairn)
cairn_install_pages(daemons cairn-coordinator cairn-ps cairn-worker)
cairn_install_completion(bash bash-completion/completions/cairn)
cairn_install_completion(zsh zsh/vendor-completions/_cairn)
cairn_install_completion(fish fish/vendor_completions.d/cairn.fish)

if(CAIRN_HAS_PYTHON)
  set(module lib/python3/dist-packages/cairn)
  install(FILES $<TARGET_FILE:cairn_python> DESTINATION ${module} COMPONENT python)
  install(DIRECTORY client/python/cairn/ DESTINATION ${module} COMPONENT python
          FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/python/cairn/v1 DESTINATION ${module} COMPONENT python
          FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME cairn)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "Cairn's maintainers <cairn@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Parameter-server cluster that trains deep networks")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL cli daemons)
if(CAIRN_HAS_PYTHON)
  list(APPEND CPACK_COMPONENTS_ALL python)
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_CLI_PACKAGE_NAME cairn)
set(CPACK_DEBIAN_CLI_PACKAGE_DEPENDS "openssl")  # cairn-make-certs
set(CPACK_DEBIAN_CLI_PACKAGE_RECOMMENDS "cairn-daemons")  # cairn up, cairn replay
set(CPACK_DEBIAN_DAEMONS_PACKAGE_NAME cairn-daemons)
set(CPACK_DEBIAN_DAEMONS_PACKAGE_DEPENDS "passwd")
set(CPACK_DEBIAN_DAEMONS_PACKAGE_RECOMMENDS "cairn, ca-certificates")  # S3
set(CPACK_DEBIAN_DAEMONS_PACKAGE_CONTROL_EXTRA
    ${CMAKE_SOURCE_DIR}/deploy/debian/postinst ${CMAKE_SOURCE_DIR}/deploy/debian/prerm)
set(CPACK_DEBIAN_DAEMONS_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-cairn)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS
    "python3 (>= 3.11), python3 (<< 3.12), python3-grpcio, python3-protobuf, python3-numpy")
set(CPACK_COMPONENT_CLI_DESCRIPTION "Command line of Cairn, with documents and example jobs.")
set(CPACK_COMPONENT_DAEMONS_DESCRIPTION "Coordinator, parameter server and worker of Cairn, with their units.")
set(CPACK_COMPONENT_PYTHON_DESCRIPTION "Python module of Cairn.")
include(CPack)
