# prun_add_plugin(NAME KIND kind SOURCES file... [INCLUDES folder...] [LIBRARIES target...] [OUTPUT folder] [TARGET name])
#
# Builds the plugin NAME of that kind as libprun_<kind>_<name>.so, target prun_<kind>_<name>, in
# <build>/lib/prun/plugins/<epoch>, and installs it to lib/prun/plugins/<epoch>. With OUTPUT, it is built in
# that folder and not installed, as tests need it; with TARGET, the target has that name. prun's own plugins and those of others are made by this one
# function: it owns what makes a library a well-behaved plugin.
#   one export      hidden visibility, a version script that lets out the entry alone, --exclude-libs
#   no surprises    -z defs: a missing symbol fails here and not at load; a build id for the run record
#   no unique symbols, which would be shared between plugins behind their backs
# Needs the target prun::sdk and the variable PRUN_EPOCH (from find_package(prun), or prun's own tree).

function(prun_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "KIND;OUTPUT;TARGET" "SOURCES;INCLUDES;LIBRARIES")
  _prun_check_plugin_arguments("${name}" "${arg_KIND}" "${arg_SOURCES}" "${arg_UNPARSED_ARGUMENTS}")
  set(file prun_${arg_KIND}_${name})
  set(target ${file})
  if(arg_TARGET)
    set(target ${arg_TARGET})
  endif()
  set(folder lib/prun/plugins/${PRUN_EPOCH})
  set(output ${CMAKE_BINARY_DIR}/${folder})
  if(arg_OUTPUT)
    set(output ${arg_OUTPUT})
  endif()

  add_library(${target} MODULE ${arg_SOURCES})
  target_include_directories(${target} PRIVATE ${arg_INCLUDES})
  target_link_libraries(${target} PRIVATE prun::sdk ${arg_LIBRARIES})
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES
    PREFIX lib
    OUTPUT_NAME ${file}
    SUFFIX .so
    LIBRARY_OUTPUT_DIRECTORY ${output}
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON
    INSTALL_RPATH "$ORIGIN/../../..")
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
  _prun_set_plugin_link_options(${target})
  if(NOT arg_OUTPUT)
    install(TARGETS ${target} LIBRARY DESTINATION ${folder})
  endif()
endfunction()

function(_prun_check_plugin_arguments name kind sources rest)
  set(kinds model strategy optimizer data observer device op schedule comm)
  if(rest)
    message(FATAL_ERROR "prun_add_plugin(${name}): unknown arguments: ${rest}")
  endif()
  if(NOT kind IN_LIST kinds)
    message(FATAL_ERROR "prun_add_plugin(${name}): KIND must be one of ${kinds}, it is '${kind}'")
  endif()
  if(NOT name MATCHES "^[a-z0-9][a-z0-9_-]*$")
    message(FATAL_ERROR "prun_add_plugin(${name}): a name is made of a-z, 0-9, '-' and '_'")
  endif()
  if(NOT sources)
    message(FATAL_ERROR "prun_add_plugin(${name}): SOURCES is missing")
  endif()
  if(NOT PRUN_EPOCH OR NOT TARGET prun::sdk)
    message(FATAL_ERROR "prun_add_plugin(${name}): call find_package(prun CONFIG REQUIRED) before")
  endif()
endfunction()

function(_prun_set_plugin_link_options target)
  set(map ${CMAKE_CURRENT_BINARY_DIR}/prun_plugin.map)
  file(CONFIGURE OUTPUT ${map} CONTENT "{ global: prun_plugin_v1; local: *; };\n")
  target_link_options(${target} PRIVATE -Wl,--version-script=${map} -Wl,--exclude-libs,ALL -Wl,--build-id)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${map})
  # With clang, a sanitizer's runtime is linked into the executable alone: the calls to it in a plugin stay
  # undefined, and -z defs would refuse them.
  get_directory_property(options COMPILE_OPTIONS)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
  set(flags "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}} ${options}")
  if(NOT flags MATCHES "-fsanitize=")
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
endfunction()
