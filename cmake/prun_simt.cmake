# prun_add_simt_kernels(TARGET file...): kernels of GPUs once more, by the host's compiler, against tests/simt: launches
# and dynamic shared memory, which C++ has no words for, are rewritten, and nothing else. Run as a script, with INPUT and
# OUTPUT, it rewrites one file. Errors and findings name the lines of the original.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${INPUT} text)
  # kernel<<<grid, block, shared, stream>>>(arguments);
  string(REGEX REPLACE "(\n *)([a-z_]+(<[A-Za-z0-9_, ]*>)?)([ \n]*)<<<([^;]*)>>>\\(([^;]*)\\);"
         "\\1::prun::simt::launch(\\5,\\4[&] { \\2(\\6); });" text "${text}")
  # extern __shared__ type name[];
  string(REGEX REPLACE "extern __shared__ (__align__\\([0-9]+\\) )?([a-z0-9_ ]+) ([a-z_]+)\\[\\];"
         "\\2* const \\3 = reinterpret_cast<\\2*>(::prun::simt::dynamic_shared);" text "${text}")
  if(text MATCHES "<<<|extern __shared__")
    message(FATAL_ERROR "${INPUT}: a launch or shared memory that cmake/prun_simt.cmake cannot rewrite; a launch is a statement of its own, without ';' in it")
  endif()
  file(WRITE ${OUTPUT} "#line 1 \"${INPUT}\"\n${text}")
  return()
endif()

set(PRUN_SIMT_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

# Writes the rewritten file below the folder, and appends it to the list `to`.
macro(prun_rewrite_kernels file output to)
  add_custom_command(OUTPUT ${output} DEPENDS ${file} ${PRUN_SIMT_SCRIPT} VERBATIM
                     COMMAND ${CMAKE_COMMAND} -DINPUT=${file} -DOUTPUT=${output} -P ${PRUN_SIMT_SCRIPT})
  list(APPEND ${to} ${output})
endmacro()

function(prun_add_simt_kernels target)
  set(folder ${CMAKE_BINARY_DIR}/generated/simt)
  set(simt ${CMAKE_SOURCE_DIR}/tests/simt)
  set(headers "")
  set(sources "")
  set(kernels ${CMAKE_SOURCE_DIR}/kernels)
  file(GLOB cuda_headers CONFIGURE_DEPENDS RELATIVE ${kernels} ${kernels}/*/*.cuh)
  foreach(file ${cuda_headers})
    if(NOT EXISTS ${simt}/include/${file})
      prun_rewrite_kernels(${kernels}/${file} ${folder}/${file} headers)
    endif()
  endforeach()
  foreach(file ${ARGN})
    file(RELATIVE_PATH name ${kernels} ${file})
    string(REGEX REPLACE "[./]+" "_" name ${name})
    prun_rewrite_kernels(${file} ${folder}/${name}.cpp sources)
  endforeach()
  add_library(${target} OBJECT ${sources} ${headers})
  target_include_directories(${target} PUBLIC ${simt}/include ${CMAKE_SOURCE_DIR} ${PRUN_SDK_INCLUDE})
  target_include_directories(${target} PRIVATE ${folder} ${CMAKE_SOURCE_DIR}/kernels)
  target_compile_definitions(${target} PRIVATE __CUDACC__)
  # ThreadSanitizer's calls without its runtime, see tests/simt/watch.hpp; lines for what is found.
  target_compile_options(${target} PRIVATE -O2 -g -fsanitize=thread -ffp-contract=off -Wno-unknown-pragmas
                         -Wno-subobject-linkage)
endfunction()
