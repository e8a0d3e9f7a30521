// Implements zero, copy and checksum for bytes of any type. On a queue that only copies there may be no
// workers.
#include <cstring>
#include <vector>

#include "cpu/isa.hpp"
#include "prun/checksum.hpp"
#include "prun/op.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

// Calls body(begin, end) on ranges of bytes, or on one range where waking the workers costs more than it
// saves.
template <class Body>
void for_bytes(const KernelContext& context, std::int64_t bytes, const Body& body) {
  constexpr std::int64_t large = 1 << 20, page = 4096;
  if (!context.workers || bytes < large)
    body(0, bytes);
  else
    parallel_ranges(*context.workers, bytes, page, body);
}

std::int64_t bytes_of(const Tensor& x) { return x.elements() * size_of(x.dtype); }

void zero(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  for_bytes(context, bytes_of(x), [&](std::int64_t begin, std::int64_t end) {
    std::memset(x.as<char>() + begin, 0, static_cast<std::size_t>(end - begin));
  });
}

void copy(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &y = args.operands[1];
  for_bytes(context, bytes_of(x), [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(y.as<char>() + begin, x.as<const char>() + begin, static_cast<std::size_t>(end - begin));
  });
}

// Each sum is the checksum of a stretch of elements.
template <class Bits>
void checksum(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &sums = args.operands[1];
  const std::int64_t count = x.elements(), parts = sums.elements();
  const auto sum_parts = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part) {
      std::uint64_t sum = 0;
      for (std::int64_t i = count * part / parts; i < count * (part + 1) / parts; ++i) {
        Bits bits;
        std::memcpy(&bits, x.as<const char>() + i * static_cast<std::int64_t>(sizeof bits), sizeof bits);
        sum += checksum_term(bits, i);
      }
      sums.as<std::uint64_t>()[part] = sum;
    }
  };
  if (context.workers)
    parallel_ranges(*context.workers, parts, 1, sum_parts);
  else
    sum_parts(0, parts);
}

Kernel select_checksum(const OpShape& s) {
  switch (size_of(s.operand[0].dtype)) {
    case 8: return checksum<std::uint64_t>;
    case 4: return checksum<std::uint32_t>;
    case 2: return checksum<std::uint16_t>;
    default: return checksum<std::uint8_t>;
  }
}

Kernel select_zero(const OpShape&) { return zero; }

Kernel select_copy(const OpShape& s) {
  return s.operand[0].bytes() == s.operand[1].bytes() && s.operand[0].dtype == s.operand[1].dtype ? copy
                                                                                                  : nullptr;
}

}  // namespace

std::vector<KernelDef> memory_kernels();
std::vector<KernelDef> memory_kernels() {
  return {{"zero", select_zero},
          {"copy", select_copy},
          {"whole_logits", select_copy},
          {"total", select_copy},
          {"checksum", select_checksum}};
}

}  // namespace prun::cpu::PRUN_ISA
