# kernels/cuda as the static library prun_cuda_kernels, where nvcc and cuBLASLt's header are found. The build is whole
# without it.
find_program(PRUN_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
get_filename_component(cuda_bin "${PRUN_NVCC}" DIRECTORY)
find_path(PRUN_CUBLASLT cublasLt.h HINTS ${cuda_bin}/../include DOC "Folder of cuBLASLt's header")
set(PRUN_CUDA_ARCHITECTURES 90a CACHE STRING "What the CUDA kernels are built for, e.g. 80;90a")

# Leaves in the list of sources what the build has headers for: attention through cuDNN, or a word that it is not there.
# The library itself is opened when it is needed.
macro(prun_choose_cudnn sources)
  set(with_cudnn ${CMAKE_SOURCE_DIR}/kernels/cuda/attention_cudnn.cpp)
  find_path(PRUN_CUDNN_FRONTEND cudnn_frontend.h DOC "Folder of cudnn-frontend's headers")
  find_path(PRUN_CUDNN cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} DOC "Folder of cuDNN's headers")
  if(PRUN_CUDNN_FRONTEND AND PRUN_CUDNN)
    message(STATUS "prun: cuDNN's headers found (${PRUN_CUDNN_FRONTEND}, ${PRUN_CUDNN}); attention uses it for bf16")
    list(REMOVE_ITEM ${sources} ${CMAKE_SOURCE_DIR}/kernels/cuda/attention_no_cudnn.cpp)
    set_source_files_properties(${with_cudnn} PROPERTIES
      COMPILE_DEFINITIONS "NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING;CUDNN_FRONTEND_SKIP_JSON_LIB"
      COMPILE_OPTIONS "-isystem${PRUN_CUDNN_FRONTEND};-isystem${PRUN_CUDNN}")
  else()
    message(STATUS "prun: no headers of cuDNN and cudnn-frontend (tools/setup fetches the latter); attention uses prun's own kernels")
    list(REMOVE_ITEM ${sources} ${with_cudnn})
  endif()
endmacro()

macro(prun_add_cuda_kernels)
  if(NOT PRUN_NVCC)
    message(STATUS "prun: nvcc not found; the CUDA kernels are left out")
  elseif(NOT PRUN_CUBLASLT)
    message(STATUS "prun: nvcc found (${PRUN_NVCC}), but not cublasLt.h; the CUDA kernels are left out: install cuBLAS with headers")
  elseif(PRUN_SANITIZE)
    message(STATUS "prun: the CUDA kernels are left out of a build with sanitizers; use compute-sanitizer on theirs")
  else()
    message(STATUS "prun: nvcc found (${PRUN_NVCC}); the CUDA kernels are built for ${PRUN_CUDA_ARCHITECTURES}")
    set(CMAKE_CUDA_COMPILER ${PRUN_NVCC})
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
    list(TRANSFORM PRUN_CUDA_ARCHITECTURES APPEND -real OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
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
    target_compile_options(prun_cuda_kernels PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:-O3;--expt-relaxed-constexpr;-Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Werror>")
    target_include_directories(prun_cuda_kernels PUBLIC ${CMAKE_SOURCE_DIR}/kernels ${PRUN_SDK_INCLUDE})
    target_link_libraries(prun_cuda_kernels PUBLIC CUDA::cudart_static ${CMAKE_DL_LIBS})
  endif()
endmacro()
