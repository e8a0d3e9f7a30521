// Lists the instruction sets that the CPU kernels are built for, and chooses between them at run time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "prun/kernel.hpp"

namespace prun::cpu {

enum class Isa : std::uint8_t { generic, avx2, avx512 };

const char* name_of(Isa isa);

bool machine_has(Isa isa);
bool was_built(Isa isa);  // the kernels of that instruction set are in this build

// `wanted` names one, or is "auto" for the best that this machine has. Throws unsupported when it lacks it.
Isa choose_isa(std::string_view wanted);

// `isa` must be one that this machine's architecture has a build for.
std::vector<KernelDef> kernels_of(Isa isa);

}  // namespace prun::cpu
