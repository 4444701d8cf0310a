# cairn_library(NAME SOURCES... DEPS libs...)      a static library; headers are included from the root of the tree
# cairn_binary(NAME SOURCES... DEPS libs...)       a program in bin/
# cairn_opens_plugins(NAME)                        a program whose plugins take Cairn's symbols from it (worker/backend/plugin.h)
# cairn_test(NAME SOURCES... DEPS libs... [LABELS l...] [TIMEOUT s])   a GoogleTest program, one ctest entry

add_library(cairn_flags INTERFACE)
target_compile_options(cairn_flags INTERFACE -Wall -Wextra -Werror -Wno-missing-field-initializers -ffp-contract=off)
target_include_directories(cairn_flags INTERFACE ${CMAKE_SOURCE_DIR})

# What is deployed: an overwritten stack, string or index ends the program, and its tables of functions are read-only
# once it is loaded. tests/lint/hardening.py looks for them in the programs. Sanitizers check more.
option(CAIRN_HARDENING "Build programs that end at an overrun (docs/security.md)" ON)
if(CAIRN_HARDENING AND NOT CAIRN_SANITIZE)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  add_compile_options(-fno-semantic-interposition)  # CairnPython.cmake says why
  target_compile_options(cairn_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong;-fstack-clash-protection;-D_GLIBCXX_ASSERTIONS>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>)
  target_link_options(cairn_flags INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
  set(CAIRN_PIE -pie)
endif()
if(CAIRN_SANITIZE)
  target_compile_options(cairn_flags INTERFACE -fsanitize=${CAIRN_SANITIZE} -fno-omit-frame-pointer)
  if(CAIRN_FUZZ)  # a finding must end the program; checks that AddressSanitizer also makes would only cost build time
    target_compile_options(cairn_flags INTERFACE -fno-sanitize-recover=all -fno-sanitize=null,object-size,vptr -Wno-error)
  endif()
  target_link_options(cairn_flags INTERFACE -fsanitize=${CAIRN_SANITIZE})
endif()
if(CAIRN_SANITIZE MATCHES thread)  # linked into every program: tests/tsan/README.md
  add_library(cairn_tsan OBJECT ${CMAKE_SOURCE_DIR}/tests/tsan/absl_mutex.cc ${CMAKE_SOURCE_DIR}/tests/tsan/receive.cc)
  target_link_libraries(cairn_tsan PUBLIC absl::synchronization PRIVATE cairn_flags)
  set(CAIRN_PROGRAM_PARTS cairn_tsan)
  set(CAIRN_TEST_ENVIRONMENT "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
endif()

# Paths in the tree are made relative, so that another clone of it can use the compiler cache.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

# Speeds up a whole build; but a changed file is recompiled with its neighbours. tests/run.sh and the image use it.
option(CAIRN_UNITY "Compile several files as one (units.py)" OFF)
if(CAIRN_UNITY)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()

# Returns what is compiled for these sources of the folder: the sources themselves, or unity sources. Sources with their
# own compile options (set before) and generated sources stay separate.
function(cairn_units out name)
  if(NOT CAIRN_UNITY)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(alone)
  set(together)
  foreach(source ${ARGN})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE OUTPUT_VARIABLE path)
    get_source_file_property(options ${path} COMPILE_OPTIONS)
    get_source_file_property(definitions ${path} COMPILE_DEFINITIONS)
    cmake_path(IS_PREFIX CMAKE_BINARY_DIR ${path} generated)
    if(generated OR options OR definitions OR NOT path MATCHES "\\.cc$")
      list(APPEND alone ${path})
    else()
      file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR} ${path})
      list(APPEND together ${path})
    endif()
  endforeach()
  set(script ${CMAKE_SOURCE_DIR}/cmake/units.py)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${script} ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/units/${name} ${together}
                  OUTPUT_VARIABLE units COMMAND_ERROR_IS_FATAL ANY)
  list(TRANSFORM together PREPEND ${CMAKE_SOURCE_DIR}/)
  # Names may clash after a change, so the unity sources are generated again.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${script} ${together})
  set(${out} ${alone} ${units} PARENT_SCOPE)
endfunction()

function(cairn_library name)
  cmake_parse_arguments(A "" "" "DEPS" ${ARGN})
  cairn_units(sources ${name} ${A_UNPARSED_ARGUMENTS})
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC ${A_DEPS} PRIVATE $<BUILD_INTERFACE:cairn_flags>)
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
endfunction()

function(cairn_binary name)
  cmake_parse_arguments(A "" "" "DEPS" ${ARGN})
  cairn_units(sources ${name} ${A_UNPARSED_ARGUMENTS})
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${A_DEPS} cairn_flags ${CAIRN_PROGRAM_PARTS})
  # Libraries are searched in ../lib first, also those that libraries need: deploy/bundle.sh copies them there.
  set_target_properties(${name} PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags ${CAIRN_PIE})
endfunction()

# Exports everything that worker/backend may use, not only what the program itself uses.
function(cairn_opens_plugins name)
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON)
  # As options, which stand before all libraries: whoever comes later finds these symbols defined.
  set(parts cairn_base cairn_tensor cairn_model cairn_backend cairn_proto)
  list(TRANSFORM parts REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE archives)
  list(JOIN archives "," archives)
  target_link_options(${name} PRIVATE "LINKER:--whole-archive,${archives},--no-whole-archive")
  add_dependencies(${name} ${parts})
endfunction()

function(cairn_test name)
  cmake_parse_arguments(A "" "TIMEOUT" "DEPS;LABELS" ${ARGN})
  if(NOT A_TIMEOUT)
    # For a test that hangs: the longest one takes a minute on an idle machine, and eight on a busy one.
    set(A_TIMEOUT 1200)
  endif()
  cairn_units(sources ${name} ${A_UNPARSED_ARGUMENTS})
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${A_DEPS} cairn_flags ${CAIRN_PROGRAM_PARTS} GTest::gtest GTest::gmock
                        GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set(environment "CAIRN_BIN=${CMAKE_BINARY_DIR}/bin" "CAIRN_SOURCE=${CMAKE_SOURCE_DIR}" ${CAIRN_TEST_ENVIRONMENT})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${A_TIMEOUT} LABELS "${A_LABELS}" ENVIRONMENT "${environment}")
endfunction()
