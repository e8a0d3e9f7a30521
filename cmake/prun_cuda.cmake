# kernels/cuda as the static library prun_cuda_kernels. The build is whole without it.
#   PRUN_CUDA=AUTO  where a GPU, its driver, nvcc and cuBLASLt's header are: for that GPU
#   PRUN_CUDA=ON    for PRUN_CUDA_ARCHITECTURES; whoever has no GPU, or builds for other machines, asks for that
#   PRUN_CUDA=OFF   never
set(PRUN_CUDA AUTO CACHE STRING "CUDA kernels: AUTO, where there is a GPU, for that one; ON; OFF")
set_property(CACHE PRUN_CUDA PROPERTY STRINGS AUTO ON OFF)
find_program(PRUN_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
get_filename_component(cuda_bin "${PRUN_NVCC}" DIRECTORY)
find_path(PRUN_CUBLASLT cublasLt.h HINTS ${cuda_bin}/../include DOC "Folder of cuBLASLt's header")
set(PRUN_CUDA_ARCHITECTURES "" CACHE STRING "What the CUDA kernels are built for: 80;90a;90-virtual. Empty: the GPUs here, or 90a")

# What the GPUs of this machine are called as architectures, each once; empty where there are none.
function(prun_gpus_here result)
  set(found "")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE said
                  ERROR_QUIET RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed)
    string(REGEX MATCHALL "[0-9]+[.][0-9]" found "${said}")
    string(REPLACE "." "" found "${found}")
    list(TRANSFORM found REPLACE "^(90)$" "\\1a")
    list(REMOVE_DUPLICATES found)
  endif()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# Why no CUDA kernels are built, in `reason`, or nothing; and for which architectures they are.
macro(prun_decide_on_cuda reason architectures)
  set(${reason} "")
  prun_gpus_here(${architectures})
  if(NOT PRUN_CUDA MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "prun: PRUN_CUDA is \"${PRUN_CUDA}\"; choose AUTO, ON or OFF")
  elseif(PRUN_CUDA STREQUAL "OFF")
    set(${reason} "PRUN_CUDA is OFF")
  elseif(PRUN_SANITIZE)
    set(${reason} "this is a build with sanitizers; use compute-sanitizer on theirs")
  elseif(PRUN_CUDA STREQUAL "AUTO" AND NOT ${architectures})
    set(${reason} "no GPU here (PRUN_CUDA=ON builds them even so)")
  elseif(NOT PRUN_NVCC)
    set(${reason} "nvcc not found")
  elseif(NOT PRUN_CUBLASLT)
    set(${reason} "nvcc found (${PRUN_NVCC}), but not cublasLt.h: install cuBLAS with headers")
  endif()
  if(${reason} AND PRUN_CUDA STREQUAL "ON" AND NOT PRUN_SANITIZE)
    message(FATAL_ERROR "prun: PRUN_CUDA is ON, but ${${reason}}")
  endif()
  if(PRUN_CUDA_ARCHITECTURES)
    set(${architectures} ${PRUN_CUDA_ARCHITECTURES})
  elseif(NOT ${architectures})
    set(${architectures} 90a)
  endif()
endmacro()

# Leaves in the list of sources what the build has headers for: attention through cuDNN, or a word that it is not there.
# The library itself is opened when it is needed.
macro(prun_choose_cudnn sources)
  set(with_cudnn ${CMAKE_SOURCE_DIR}/kernels/cuda/attention_cudnn.cpp)
  find_path(PRUN_CUDNN_FRONTEND cudnn_frontend.h DOC "Folder of cudnn-frontend's headers")
  find_path(PRUN_CUDNN cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} DOC "Folder of cuDNN's headers")
  if(PRUN_CUDNN_FRONTEND AND PRUN_CUDNN)
    message(STATUS "prun: cuDNN's headers found (${PRUN_CUDNN_FRONTEND}, ${PRUN_CUDNN}); attention uses it for bf16")
    list(REMOVE_ITEM ${sources} ${CMAKE_SOURCE_DIR}/kernels/cuda/attention_no_cudnn.cpp)
    # It builds a graph once a shape, and is cuDNN's headers for the most part: -O3 would take twice as long.
    set_source_files_properties(${with_cudnn} PROPERTIES
      COMPILE_DEFINITIONS "NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING;CUDNN_FRONTEND_SKIP_JSON_LIB"
      COMPILE_OPTIONS "$<$<CONFIG:Release>:-O1>;-isystem${PRUN_CUDNN_FRONTEND};-isystem${PRUN_CUDNN}")
  else()
    message(STATUS "prun: no headers of cuDNN and cudnn-frontend (tools/setup fetches the latter); attention uses prun's own kernels")
    list(REMOVE_ITEM ${sources} ${with_cudnn})
  endif()
endmacro()

macro(prun_add_cuda_kernels)
  prun_decide_on_cuda(prun_no_cuda prun_architectures)
  if(prun_no_cuda)
    message(STATUS "prun: the CUDA kernels are left out: ${prun_no_cuda}")
  else()
    message(STATUS "prun: nvcc found (${PRUN_NVCC}); the CUDA kernels are built for ${prun_architectures}")
    set(CMAKE_CUDA_COMPILER ${PRUN_NVCC})
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
    list(TRANSFORM prun_architectures REPLACE "^([0-9]+a?)$" "\\1-real" OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
    enable_language(CUDA)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know that nvcc takes it
    find_package(CUDAToolkit REQUIRED)
    if(PRUN_CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${PRUN_CCACHE})
    endif()
    file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu
         ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cpp)
    prun_choose_cudnn(cuda_sources)
    add_library(prun_cuda_kernels STATIC ${cuda_sources})
    set_target_properties(prun_cuda_kernels PROPERTIES UNITY_BUILD OFF)
    target_compile_options(prun_cuda_kernels PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:-O3;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra>")
    if(PRUN_WERROR)
      target_compile_options(prun_cuda_kernels PRIVATE
        "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
    endif()
    if("90a" IN_LIST prun_architectures OR "90a-real" IN_LIST prun_architectures)
      set_source_files_properties(${CMAKE_SOURCE_DIR}/kernels/cuda/tensor_grouped.cu PROPERTIES COMPILE_DEFINITIONS PRUN_WARPGROUPS)
    endif()
    target_include_directories(prun_cuda_kernels PUBLIC ${CMAKE_SOURCE_DIR}/kernels ${PRUN_SDK_INCLUDE})
    target_link_libraries(prun_cuda_kernels PUBLIC CUDA::cudart_static ${CMAKE_DL_LIBS})
  endif()
endmacro()
