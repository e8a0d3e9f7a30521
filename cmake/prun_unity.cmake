# prun_compile_together(TARGET [ALONE file...]): with PRUN_UNITY, the target's files are compiled by sixteens, those of
# one folder together, and those of all op families: most of a file's time goes into what it includes. Files of a folder that use a name for two things of
# their own are named in ALONE, by the end of their path.
function(prun_compile_together target)
  cmake_parse_arguments(T "" "" "ALONE" ${ARGN})
  if(NOT PRUN_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # Files see the names that those before them keep to themselves. A build without PRUN_UNITY (preset alone) warns of these.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-shadow>
                         $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "^/.*[.]cpp$")
  foreach(alone ${T_ALONE})
    string(REPLACE "." "[.]" alone ${alone})
    list(FILTER sources EXCLUDE REGEX "/${alone}$")
  endforeach()
  set(at_once 16)
  foreach(source ${sources})
    get_filename_component(folder ${source} DIRECTORY)
    string(REGEX REPLACE "/kernels/[a-z0-9_]+$" "/kernels" folder ${folder})
    string(MAKE_C_IDENTIFIER "${folder}" key)
    math(EXPR count_${key} "0${count_${key}} + 1")
    math(EXPR part "(${count_${key}} - 1) / ${at_once}")
    get_filename_component(room ${folder} NAME)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${room}_${part})
  endforeach()
endfunction()
