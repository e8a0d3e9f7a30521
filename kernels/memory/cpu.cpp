// Implements zero, copy and checksum for bytes of any type. On a queue that only copies there may be no
// workers.
#include <cstring>
#include <vector>

#include "cpu/isa.hpp"
#include "prun/checksum.hpp"
#include "prun/op.hpp"
#include "prun/ops/memory.hpp"

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
  const ArgsOf<ops::Zero> op(args);
  const Tensor& x = op["x"];
  for_bytes(context, bytes_of(x), [&](std::int64_t begin, std::int64_t end) {
    std::memset(x.as<char>() + begin, 0, static_cast<std::size_t>(end - begin));
  });
}

template <class Op>
void copy(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<Op> op(args);
  const Tensor &x = op["x"], &y = op["y"];
  for_bytes(context, bytes_of(x), [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(y.as<char>() + begin, x.as<const char>() + begin, static_cast<std::size_t>(end - begin));
  });
}

// Each sum is the checksum of a stretch of elements.
template <class Bits>
void checksum(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Checksum> op(args);
  const Tensor &x = op["x"], &sums = op["sums"];
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

Kernel select_checksum(const OpShape& shape) {
  const ShapeOf<ops::Checksum> s(shape);
  switch (size_of(s["x"].dtype)) {
    case 8: return checksum<std::uint64_t>;
    case 4: return checksum<std::uint32_t>;
    case 2: return checksum<std::uint16_t>;
    default: return checksum<std::uint8_t>;
  }
}

Kernel select_zero(const OpShape&) { return zero; }

template <class Op>
Kernel select_copy(const OpShape& shape) {
  const ShapeOf<Op> s(shape);
  return s["x"].bytes() == s["y"].bytes() && s["x"].dtype == s["y"].dtype ? copy<Op> : nullptr;
}

}  // namespace

std::vector<KernelDef> memory_kernels();
std::vector<KernelDef> memory_kernels() {
  return {{ops::Zero::kind, select_zero},
          {ops::Copy::kind, select_copy<ops::Copy>},
          {ops::WholeLogits::kind, select_copy<ops::WholeLogits>},
          {ops::Total::kind, select_copy<ops::Total>},
          {ops::Checksum::kind, select_checksum}};
}

}  // namespace prun::cpu::PRUN_ISA
