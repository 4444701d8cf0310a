# The Python module cairn._cairn (worker/python). CAIRN_HAS_PYTHON: it is built; else configure says why not.
#
# Its libraries are built as position-independent code. Functions of a library may then not be replaced by another's,
# so that the compiler inlines them as it does without (-fno-semantic-interposition).
option(CAIRN_PYTHON_MODULE "Build the Python module where pybind11 and Python's headers are" ON)
set(CAIRN_HAS_PYTHON OFF)
if(NOT CAIRN_PYTHON_MODULE)
  message(STATUS "Python module: off (CAIRN_PYTHON_MODULE)")
elseif(CAIRN_SANITIZE)
  message(STATUS "Python module: off, since Python's interpreter has no sanitizer")
else()
  # Debian's own python3: another one may come first on PATH.
  set(Python_EXECUTABLE /usr/bin/python3 CACHE FILEPATH "The interpreter that the module is for")
  find_package(Python COMPONENTS Interpreter Development.Module QUIET)
  find_package(pybind11 CONFIG QUIET)
  if(NOT Python_Development.Module_FOUND)
    message(STATUS "Python module: off, since Python's headers are missing (python3-dev)")
  elseif(NOT pybind11_FOUND)
    message(STATUS "Python module: off, since pybind11 is missing (pybind11-dev)")
  else()
    message(STATUS "Python module: for ${Python_EXECUTABLE} ${Python_VERSION}")
    set(CAIRN_HAS_PYTHON ON)
    set(CMAKE_POSITION_INDEPENDENT_CODE ON)
    add_compile_options(-fno-semantic-interposition)
  endif()
endif()
