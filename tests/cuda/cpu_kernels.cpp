// The reference of all tests here.
#include "tests/cuda/device_value.hpp"

PRUN_TEST_KERNELS(all_kernels, reference)

namespace prun::test {

const InstructionSet& cpu_kernels() {
  static const InstructionSet best = reference::all_kernels().back();
  return best;
}

}  // namespace prun::test
