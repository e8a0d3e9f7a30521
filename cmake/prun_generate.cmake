# Tables generated from file names, so that adding an op or a kernel touches only its own file.

# core/ops/foo.cpp defines `std::vector<OpDef> foo_ops()`; the table calls them all.
function(prun_generate_op_table folder output)
  file(GLOB files CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/*.cpp)
  list(REMOVE_ITEM files registry.cpp)
  list(SORT files)
  set(declarations "")
  set(calls "")
  foreach(file ${files})
    get_filename_component(name ${file} NAME_WE)
    string(APPEND declarations "std::vector<OpDef> ${name}_ops();\n")
    string(APPEND calls "  append(${name}_ops());\n")
  endforeach()
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
// Generated from the files of core/ops.
#include "ops/registry.hpp"

namespace prun {
@declarations@
std::vector<OpDef> builtin_ops() {
  std::vector<OpDef> all;
  const auto append = [&](const std::vector<OpDef>& ops) { all.insert(all.end(), ops.begin(), ops.end()); };
@calls@  return all;
}
}  // namespace prun
]])
endfunction()

# plugins/device/cuda/ops/foo.cpp defines `std::vector<DeviceOp> foo_ops(const OpChoices&)`; the table calls them all. Files without
# that function do something for several.
function(prun_generate_device_op_table folder output)
  file(GLOB files CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/*.cpp)
  list(SORT files)
  set(declarations "")
  set(calls "")
  foreach(file ${files})
    get_filename_component(name ${file} NAME_WE)
    file(STRINGS ${folder}/${file} found REGEX "${name}_ops\\(const OpChoices&")
    if(found)
      string(APPEND declarations "std::vector<DeviceOp> ${name}_ops(const OpChoices& choices);\n")
      string(APPEND calls "  append(${name}_ops(choices));\n")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
// Generated from the files of plugins/device/cuda/ops.
#include "device_op.hpp"

namespace prun::cuda {
@declarations@
std::vector<DeviceOp> all_device_ops(const OpChoices& choices) {
  std::vector<DeviceOp> all;
  const auto append = [&](const std::vector<DeviceOp>& ops) { all.insert(all.end(), ops.begin(), ops.end()); };
@calls@  return all;
}
}  // namespace prun::cuda
]])
endfunction()

# kernels/cpu/foo.cpp defines `std::vector<KernelDef> foo_kernels()` inside prun::cpu::<isa>. Files without that
# function are support code.
function(prun_generate_kernel_table folder output)
  file(GLOB files CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/*.cpp)
  list(SORT files)
  set(declarations "")
  set(calls "")
  foreach(file ${files})
    get_filename_component(name ${file} NAME_WE)
    file(STRINGS ${folder}/${file} found REGEX "${name}_kernels\\(\\)")
    if(found)
      string(APPEND declarations "std::vector<KernelDef> ${name}_kernels();\n")
      string(APPEND calls "  append(${name}_kernels());\n")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
// Generated from the files of kernels/cpu; compiled once for each instruction set.
#include <vector>

#include "prun/kernel.hpp"

namespace prun::cpu::PRUN_ISA {
@declarations@
std::vector<KernelDef> all_kernels();
std::vector<KernelDef> all_kernels() {
  std::vector<KernelDef> all;
  const auto append = [&](const std::vector<KernelDef>& some) { all.insert(all.end(), some.begin(), some.end()); };
@calls@  return all;
}
}  // namespace prun::cpu::PRUN_ISA
]])
endfunction()

# The best instruction set that this host has: what core/base and plugins/device/cpu ask the machine for, by the names that
# the system gives them.
function(prun_host_isa result)
  set(cpu "")
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo cpu REGEX "^flags" LIMIT_COUNT 1)
  endif()
  set(best generic)
  set(needed_avx2 avx2 fma bmi1 bmi2 f16c movbe abm)
  set(needed_avx512 ${needed_avx2} avx512f avx512dq avx512bw avx512vl avx512cd)
  foreach(isa avx2 avx512)
    set(has_all ON)
    foreach(flag ${needed_${isa}})
      if(NOT " ${cpu} " MATCHES " ${flag} ")
        set(has_all OFF)
      endif()
    endforeach()
    if(has_all)
      set(best ${isa})
    endif()
  endforeach()
  set(${result} ${best} PARENT_SCOPE)
endfunction()

# Compiles kernels/cpu once for each instruction set, or for this host's alone; `libraries` receives the object libraries'
# names.
function(prun_add_cpu_kernels libraries)
  set(folder ${CMAKE_SOURCE_DIR}/kernels/cpu)
  set(table ${CMAKE_BINARY_DIR}/generated/cpu_kernels.cpp)
  prun_generate_kernel_table(${folder} ${table})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  set(isas generic)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND isas avx2 avx512)
  endif()
  if(PRUN_INSTRUCTION_SETS STREQUAL "host")
    prun_host_isa(isas)
    message(STATUS "prun: the CPU kernels are built for this host, ${isas}")
  endif()
  set(flags_generic "")
  set(flags_avx2 -march=haswell)
  set(flags_avx512 -march=skylake-avx512 -mprefer-vector-width=512)
  # Sanitized kernels are for finding faults: -O3 would triple the time they take to compile.
  set(optimize -O3)
  if(PRUN_SANITIZE)
    set(optimize -O1)
  endif()
  # Updates and codes are fixed sequences of operations: see kernels/update_rule.hpp and kernels/number_codes.hpp.
  set_source_files_properties(${folder}/optimizer.cpp ${folder}/gradient_norm.cpp ${folder}/coded.cpp ${folder}/summands.cpp PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
  set(names "")
  foreach(isa ${isas})
    set(name prun_cpu_kernels_${isa})
    add_library(${name} OBJECT ${sources} ${table})
    set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)  # what is inlined decides on which products are fused
    target_compile_definitions(${name} PRIVATE PRUN_ISA=${isa})
    target_compile_options(${name} PRIVATE ${optimize} -fno-math-errno -fno-trapping-math -ffp-contract=fast -fopenmp-simd
                                           -fvisibility=hidden -fvisibility-inlines-hidden ${flags_${isa}})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/kernels ${PRUN_SDK_INCLUDE})
    list(APPEND names ${name})
  endforeach()
  set(${libraries} ${names} PARENT_SCOPE)
endfunction()

# Compiles kernels/random once for each instruction set into the target. The flags are what core/base/random.cpp
# asks the machine for. Bits are the same in all: nothing is fused that does not say so.
function(prun_add_normal_numbers target)
  set(isas generic)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND isas avx2 avx512)
  endif()
  set(flags_generic "")
  set(flags_avx2 -mavx2 -mfma)
  set(flags_avx512 -mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma -mprefer-vector-width=512)
  foreach(isa ${isas})
    set(name prun_normal_${isa})
    add_library(${name} OBJECT ${CMAKE_SOURCE_DIR}/kernels/random/normal.cpp)
    target_compile_definitions(${name} PRIVATE PRUN_ISA=${isa})
    target_compile_options(${name} PRIVATE -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off
                                           -fvisibility=hidden ${flags_${isa}})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/kernels)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${name}>)
  endforeach()
endfunction()

# Style and script of the pages that `prun report` writes, as texts of the program.
function(prun_embed_page folder output)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/page.css ${folder}/page.js)
  file(READ ${folder}/page.css style)
  file(READ ${folder}/page.js script)
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
// Generated from tools/report/page.css and tools/report/page.js.
#include "report/assets.hpp"

namespace prun {
const std::string_view page_style = R"prun_css(@style@)prun_css";
const std::string_view page_script = R"prun_js(@script@)prun_js";
}  // namespace prun
]])
endfunction()

# The verbs of a program in the order of its help: each brings its commands by VERB_verb(), of tools/*/VERB_verb.cpp.
# `left_out` is what it says of those that it has not.
function(prun_generate_verb_table output left_out)
  set(declarations "")
  set(calls "")
  foreach(verb ${ARGN})
    string(APPEND declarations "std::vector<Command> ${verb}_verb();\n")
    string(APPEND calls "  append(${verb}_verb());\n")
  endforeach()
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
// Generated from the verbs that tools/CMakeLists.txt names.
#include "cli/command_table.hpp"

namespace prun {
@declarations@
std::vector<Command> linked_commands() {
  std::vector<Command> all;
  const auto append = [&](const std::vector<Command>& some) { all.insert(all.end(), some.begin(), some.end()); };
@calls@  return all;
}

std::string_view left_out() { return "@left_out@"; }

}  // namespace prun
]])
endfunction()

# The first of the files that speaks of the op `kind` by name, with its path from the root of the sources.
function(_prun_file_with_op kind result)
  set(found "")
  foreach(file ${ARGN})
    file(READ ${file} text)
    string(FIND "${text}" "\"${kind}\"" at)
    if(NOT at EQUAL -1)
      file(RELATIVE_PATH found ${CMAKE_SOURCE_DIR} ${file})
      break()
    endif()
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# One line an op: where its rule, its kernel for CPUs, its launch and kernels for GPUs and its example lie. `prun explain` says it.
function(prun_generate_op_places output)
  file(GLOB rules CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/core/ops/*.cpp)
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cpu/*.cpp)
  file(GLOB launches CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/plugins/device/cuda/ops/*.cpp)
  list(FILTER launches EXCLUDE REGEX "fusions.cpp$")
  set(lines "")
  foreach(rule ${rules})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${rule})
    file(RELATIVE_PATH rule_path ${CMAKE_SOURCE_DIR} ${rule})
    file(STRINGS ${rule} kinds REGEX " kind = \"")
    foreach(line ${kinds})
      string(REGEX REPLACE ".*\"(.*)\".*" "\\1" kind "${line}")
      set(places "rule in ${rule_path}")
      _prun_file_with_op(${kind} kernel ${kernels})
      _prun_file_with_op(${kind} launch ${launches})
      _prun_file_with_op(${kind} example ${CMAKE_SOURCE_DIR}/tools/explain/builtin_examples.cpp)
      if(kernel)
        string(APPEND places ", CPU kernel in ${kernel}")
      endif()
      if(launch)
        string(APPEND places ", CUDA launch in ${launch}")
        foreach(alike ${kernel} ${launch})
          get_filename_component(name ${alike} NAME_WE)
          if(EXISTS ${CMAKE_SOURCE_DIR}/kernels/cuda/${name}.cu)
            string(APPEND places " and its kernels in kernels/cuda/${name}.cu")
            break()
          endif()
        endforeach()
      endif()
      if(example)
        string(APPEND places ", example in ${example}")
      endif()
      string(APPEND lines "    {\"${kind}\", \"${places}\"},\n")
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
// Generated from the sources: see prun_generate_op_places().
#include "explain/op_places.hpp"

namespace prun {

std::string_view places_of_op(std::string_view kind) {
  struct Places {
    std::string_view kind, places;
  };
  static constexpr Places all[] = {
@lines@  };
  for (const Places& op : all)
    if (op.kind == kind) return op.places;
  return "";
}

}  // namespace prun
]])
endfunction()
