// Each build of the kernels has its own list; a build may assume exactly what machine_has() checks.
#include "isa.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace prun::cpu {

// A build of prun may have the kernels of one instruction set alone: an entry that it lacks is null, and
// hidden, so that the linker knows it.
#define PRUN_KERNELS_OF(isa)                                                     \
  namespace isa {                                                                \
  [[gnu::weak, gnu::visibility("hidden")]] std::vector<KernelDef> all_kernels(); \
  }
PRUN_KERNELS_OF(generic)
PRUN_KERNELS_OF(avx2)
PRUN_KERNELS_OF(avx512)
#undef PRUN_KERNELS_OF

namespace {

using KernelTable = std::vector<KernelDef> (*)();

KernelTable table_of(Isa isa) {
  switch (isa) {
    case Isa::generic: return generic::all_kernels;
    case Isa::avx2: return avx2::all_kernels;
    case Isa::avx512: return avx512::all_kernels;
  }
  return nullptr;
}

}  // namespace

bool was_built(Isa isa) { return table_of(isa) != nullptr; }

namespace {

// Bits of results differ between instruction sets: no other one may stand in for the best that the machine
// has.
Isa built(Isa isa) {
  if (!was_built(isa))
    throw_error(ErrorCode::unsupported, "device cpu: this prun was built without kernels for ", name_of(isa),
                "; configure the build with -DPRUN_INSTRUCTION_SETS=all");
  return isa;
}

}  // namespace

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::generic: return "generic";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
  }
  return "?";
}

#if defined(__x86_64__)

namespace {

// Checks features that not every compiler's __builtin_cpu_supports knows. Their registers are those of AVX,
// so a check for AVX covers the system's part.
bool has_haswell_extras() {
  constexpr unsigned features = 1, extended_features = 0x80000001u;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(features, &eax, &ebx, &ecx, &edx) || !(ecx & bit_F16C) || !(ecx & bit_MOVBE)) return false;
  return __get_cpuid(extended_features, &eax, &ebx, &ecx, &edx) && (ecx & bit_LZCNT);
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && has_haswell_extras();
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd");
}

}  // namespace

bool machine_has(Isa isa) {
  switch (isa) {
    case Isa::generic: return true;
    case Isa::avx2: return has_avx2();
    case Isa::avx512: return has_avx512();
  }
  return false;
}

#else

bool machine_has(Isa isa) { return isa == Isa::generic; }

#endif

std::vector<KernelDef> kernels_of(Isa isa) {
  const KernelTable table = table_of(isa);
  PRUN_CHECK(table, "no CPU kernels are built here for ", name_of(isa));
  return table();
}

Isa choose_isa(std::string_view wanted) {
  Isa best = Isa::generic;
  for (Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (machine_has(isa)) best = isa;
    if (wanted != name_of(isa)) continue;
    if (!machine_has(isa))
      throw_error(ErrorCode::unsupported, "device cpu: isa = \"", wanted, "\", but this machine has only ",
                  name_of(best), "; set isa = \"auto\"");
    return built(isa);
  }
  if (wanted != "auto")
    throw_error(ErrorCode::bad_input, "device cpu: isa = \"", wanted,
                "\" is none of auto, generic, avx2, avx512; choose one of them");
  return built(best);
}

}  // namespace prun::cpu
