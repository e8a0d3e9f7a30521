# Tables generated from file names, so that adding an op or a kernel touches only its own file.

# An op family is a folder, kernels/F. Suffixes say which target a file belongs to:
#   F.hpp          definitions: what operands and attributes ops have, for users' ops and kernels too, as prun/ops/F.hpp
#   F.cpp          rules, gradients and costs: the core; `std::vector<OpDef> F_ops()`
#   cpu*.cpp       kernels of the CPU, one library an instruction set: `std::vector<KernelDef> F_kernels()`
#   cuda*.cu, .cpp kernels of GPUs: the library prun_cuda_kernels
#   bind*.cpp      their launches, the device plugin cuda: `std::vector<DeviceOp> F_ops(const OpChoices&)`
#   example.cpp    operands that `prun explain` and the checks of ops use: `std::vector<OpExample> F_examples()`
# A folder may have several files of a suffix. kernels/cpu, kernels/cuda and kernels/rules have what several families share.

# The sources of all families that define ops.
function(prun_op_sources result)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/*/*.cpp)
  list(FILTER files EXCLUDE REGEX "/(cpu|cuda|bind|test|example)[a-z0-9_]*[.]cpp$|/kernels/(cpu|cuda|random)/")
  list(SORT files)
  set(${result} ${files} PARENT_SCOPE)
endfunction()

# The definitions of their ops, and what several of these share: headers of the SDK.
function(prun_op_headers result)
  prun_op_sources(sources)
  set(found ${CMAKE_SOURCE_DIR}/kernels/rules/shared_operands.hpp)
  foreach(source ${sources})
    string(REGEX REPLACE "cpp$" "hpp" header ${source})
    if(EXISTS ${header})
      list(APPEND found ${header})
    endif()
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# Which functions named NAME_<suffix> files define, each on a line that begins with `type`:
# declarations of these, and calls append(NAME_<suffix>(arguments)).
function(_prun_list_tables type suffix parameters arguments declarations calls)
  set(all_declarations "")
  set(all_calls "")
  foreach(file ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(STRINGS ${file} found REGEX "^std::vector<${type}> [a-z0-9_]+_${suffix}\\(.*{")
    foreach(line ${found})
      string(REGEX REPLACE "^[^ ]+ ([a-z0-9_]+)\\(.*" "\\1" name "${line}")
      string(APPEND all_declarations "std::vector<${type}> ${name}(${parameters});\n")
      string(APPEND all_calls "  append(${name}(${arguments}));\n")
    endforeach()
  endforeach()
  set(${declarations} "${all_declarations}" PARENT_SCOPE)
  set(${calls} "${all_calls}" PARENT_SCOPE)
endfunction()

# All ops that the files define.
function(prun_generate_op_table output)
  _prun_list_tables(OpDef ops "" "" declarations calls ${ARGN})
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
// Generated from the files kernels/F/F.cpp.
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

# All launches of GPUs' kernels that the files define.
function(prun_generate_device_op_table output)
  _prun_list_tables(DeviceOp ops "const OpChoices& choices" "choices" declarations calls ${ARGN})
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
// Generated from the files kernels/F/bind.cpp.
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

# All kernels of the CPU that the files define inside prun::cpu::<isa>.
function(prun_generate_kernel_table output)
  _prun_list_tables(KernelDef kernels "" "" declarations calls ${ARGN})
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
// Generated from the files kernels/F/cpu.cpp; compiled once for each instruction set.
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

# All examples that the files give.
function(prun_generate_example_table output)
  _prun_list_tables(OpExample examples "" "" declarations calls ${ARGN})
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
// Generated from the files kernels/F/example.cpp.
#include "explain/builtin_examples.hpp"

namespace prun {
@declarations@
std::vector<OpExample> builtin_examples() {
  std::vector<OpExample> all;
  const auto append = [&](const std::vector<OpExample>& some) { all.insert(all.end(), some.begin(), some.end()); };
@calls@  return all;
}
}  // namespace prun
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

# Compiles the CPU's kernels once for each instruction set, or for this host's alone; `libraries` receives the object libraries'
# names.
function(prun_add_cpu_kernels libraries)
  set(folder ${CMAKE_SOURCE_DIR}/kernels)
  set(table ${CMAKE_BINARY_DIR}/generated/cpu_kernels.cpp)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/cpu/*.cpp ${folder}/*/cpu*.cpp)
  prun_generate_kernel_table(${table} ${sources})
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
  set(fixed ${folder}/optimizer/cpu.cpp ${folder}/optimizer/cpu_norm.cpp ${folder}/coded/cpu.cpp ${folder}/summands/cpu.cpp)
  foreach(file ${fixed})
    if(NOT file IN_LIST sources)
      message(FATAL_ERROR "prun: ${file}, whose operations must not be fused, is not among the CPU's kernels; name its new place here")
    endif()
  endforeach()
  set_source_files_properties(${fixed} PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
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

# The verbs of a program in the order of its help: each brings its commands by VERB_verb(), of a file in tools/*/.
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

# The first of the files whose text matches the pattern, with its path from the root of the sources.
function(_prun_file_with pattern result)
  set(found "")
  foreach(file ${ARGN})
    file(READ ${file} text)
    if(text MATCHES "${pattern}")
      file(RELATIVE_PATH found ${CMAKE_SOURCE_DIR} ${file})
      break()
    endif()
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# One line an op: where its rule, its kernel for CPUs, its launch and kernels for GPUs and its example lie. `prun explain` says it.
function(prun_generate_op_places output)
  prun_op_sources(rules)
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/*/cpu*.cpp)
  file(GLOB launches CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/*/bind*.cpp)
  file(GLOB examples CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/*/example.cpp)
  set(lines "")
  foreach(rule ${rules})
    file(RELATIVE_PATH rule_path ${CMAKE_SOURCE_DIR} ${rule})
    string(REGEX REPLACE "cpp$" "hpp" definition ${rule})
    if(NOT EXISTS ${definition})
      set(definition ${rule})
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${definition})
    file(STRINGS ${definition} kinds REGEX "^struct |^  static .* kind = \"")
    set(type "")
    foreach(line ${kinds})
      if(line MATCHES "^struct ([A-Za-z0-9]+)")
        set(type ${CMAKE_MATCH_1})
        continue()
      endif()
      string(REGEX REPLACE ".*\"(.*)\".*" "\\1" kind "${line}")
      set(places "rule in ${rule_path}")
      # A kind may be the name of another op's operand or attribute: what C++ calls the op is what kernels and launches name.
      set(named "ops::${type}(::kind|>)|[ {]${type}::kind")
      _prun_file_with("${named}" kernel ${kernels})
      _prun_file_with("${named}" launch ${launches})
      _prun_file_with("OpExample[(]\"${kind}\"[)]" example ${examples})
      if(kernel)
        string(APPEND places ", CPU kernel in ${kernel}")
      endif()
      if(launch)
        string(APPEND places ", CUDA launch in ${launch}")
        get_filename_component(folder ${launch} DIRECTORY)
        file(GLOB gpu_kernels CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/${folder}/cuda*.cu)
        if(gpu_kernels)
          list(JOIN gpu_kernels " " gpu_kernels)
          string(APPEND places " and its kernels in ${gpu_kernels}")
        endif()
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
