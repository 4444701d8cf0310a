# cairn_embed(OUT HEADER NAME=FILE...)    a source file that defines the std::string_views of HEADER, each with the bytes of a text file.
#
# The same file, run as a script (cmake -P), writes the source file.
if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  set(text "// Written by cmake/Embed.cmake.\n#include \"${HEADER}\"\n\nnamespace cairn {\n\n")
  string(REPLACE "|" ";" pairs "${PAIRS}")
  foreach(pair ${pairs})
    string(REGEX MATCH "^([^=]+)=(.+)$" all "${pair}")
    set(name ${CMAKE_MATCH_1})
    file(READ ${CMAKE_MATCH_2} hex HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," hex "${hex}")
    string(APPEND text "static const char ${name}Bytes[] = {\n${hex}};\nconst std::string_view ${name}(${name}Bytes, sizeof(${name}Bytes));\n\n")
  endforeach()
  file(WRITE ${OUT} "${text}}  // namespace cairn\n")
  return()
endif()

function(cairn_embed out header)
  set(files "")
  foreach(pair ${ARGN})
    string(REGEX REPLACE "^[^=]+=" "" file "${pair}")
    list(APPEND files ${file})
  endforeach()
  string(REPLACE ";" "|" pairs "${ARGN}")
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DHEADER=${header} "-DPAIRS=${pairs}" -P ${CMAKE_SOURCE_DIR}/cmake/Embed.cmake
    DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/Embed.cmake
    VERBATIM)
endfunction()
