// Implements peak_fp8_squares and encode_fp8_part: a part of a flat range finds the largest magnitudes in
// squares of a matrix there, and makes codes by those of all parts. Each thread has rows of squares of its
// own.
#include <limits>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/fp8_squares.hpp"
#include "prun/ops/fp8_parts.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> fp8_parts_kernels();

namespace {

// Describes the matrix, and which of its bytes of codes, from its first on, the part at hand has.
struct MatrixInPart {
  std::int64_t rows, columns, place, from, to;

  template <class Op>
  explicit MatrixInPart(const ArgsOf<Op>& op)
      : rows(op.integer("rows")), columns(op.integer("columns")), place(op.integer("place")) {
    const Tensor& x = op["x"];
    from = x.start[0] - op.integer("first");
    to = from + x.elements();
  }

  std::int64_t across() const { return (columns + fp8_block - 1) / fp8_block; }
  std::int64_t down() const { return (rows + fp8_block - 1) / fp8_block; }
  bool has(std::int64_t at) const { return from <= at && at < to; }
};

// Calls body(number of the square, first element, behind the last) for the part's stretches of each square's
// rows, one row of squares on one thread.
template <class Body>
void each_stretch(const MatrixInPart& m, const Workers& workers, Body body) {
  parallel_ranges(workers, m.down(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin * fp8_block; row < std::min(end * fp8_block, m.rows); ++row)
      for (std::int64_t k = 0; k < m.across(); ++k) {
        const std::int64_t line = row * m.columns, first = std::max(line + k * fp8_block, m.from),
                           last = std::min(line + std::min((k + 1) * fp8_block, m.columns), m.to);
        if (first < last) body(row / fp8_block * m.across() + k, first, last);
      }
  });
}

template <class T>
void peak_fp8_squares(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::PeakFp8Squares> op(args);
  const MatrixInPart m(op);
  const T* const x = op["x"].as<const T>();
  float* const peaks = op["peaks"].as<float>() + m.place;
  each_stretch(m, *context.workers, [&](std::int64_t square, std::int64_t first, std::int64_t last) {
    float largest = peaks[square];
    for (std::int64_t at = first; at < last; ++at) {
      const auto size = static_cast<float>(std::abs(load(x[at - m.from])));
      largest = size <= largest       ? largest
                : std::isfinite(size) ? size
                                      : std::numeric_limits<float>::infinity();
    }
    peaks[square] = largest;
  });
}

std::uint32_t scale_of(float peak) { return fp8_scale_bits(std::bit_cast<std::uint32_t>(peak)); }

// Writes what the part has of the bytes behind the codes.
void write_scales(const MatrixInPart& m, const float* peaks, std::uint8_t* codes) {
  const Fp8Squares squares{m.columns, m.rows};
  for (std::int64_t i = 0; i < m.down(); ++i)
    for (std::int64_t k = 0; k < m.across(); ++k) {
      const std::int64_t at = m.rows * m.columns + (i * squares.stride() + k) * std::int64_t{sizeof(float)};
      const std::uint32_t scale = scale_of(peaks[i * m.across() + k]);
      if (m.has(at)) std::memcpy(codes + at - m.from, &scale, sizeof scale);
    }
}

template <class T>
void encode_fp8_part(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::EncodeFp8Part> op(args);
  using C = Compute<T>;
  const MatrixInPart m(op);
  const T* const x = op["x"].as<const T>();
  const float* const peaks = op["peaks"].as<const float>() + m.place;
  auto* const codes = op["codes"].as<std::uint8_t>();
  each_stretch(m, *context.workers, [&](std::int64_t square, std::int64_t first, std::int64_t last) {
    const std::uint32_t scale = scale_of(peaks[square]);
    const bool finite = std::isfinite(peaks[square]);
    const auto inverse = static_cast<C>(std::bit_cast<float>(fp8_inverse_bits(scale)));
    for (std::int64_t at = first; at < last; ++at) {
      const auto number = static_cast<float>(round_to_e4m3(load(x[at - m.from]) * inverse));
      codes[at - m.from] = static_cast<std::uint8_t>(finite ? e4m3_code(number) : e4m3_nan);
    }
  });
  write_scales(m, peaks, codes);
}

Kernel select_peak(const OpShape& shape) {
  const ShapeOf<ops::PeakFp8Squares> s(shape);
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return peak_fp8_squares<T>; });
}

Kernel select_encode_part(const OpShape& shape) {
  const ShapeOf<ops::EncodeFp8Part> s(shape);
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return encode_fp8_part<T>; });
}

}  // namespace

std::vector<KernelDef> fp8_parts_kernels() {
  return {{ops::PeakFp8Squares::kind, select_peak}, {ops::EncodeFp8Part::kind, select_encode_part}};
}

}  // namespace prun::cpu::PRUN_ISA
