// Implements encode, encode_onward, decode, sum_decoded, encode_fp8 and decode_fp8: numbers in blocks of
// codes with a scale each. Each block stands by itself, so the bits are the same wherever rows are cut.
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"
#include "number_codes.hpp"
#include "prun/ops/coded.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

using Index = std::int64_t;

constexpr Index grain = 64;  // counts blocks

// Returns NaN where any number is NaN or infinite.
template <class C>
C largest_of(const C* x) {
  C largest = 0, sum = 0;
#pragma omp simd reduction(max : largest) reduction(+ : sum)
  for (Index i = 0; i < code_block; ++i) {
    const C size = std::abs(x[i]);
    largest = largest < size ? size : largest;
    sum += size - size;  // adds NaN where it is not finite, else 0
  }
  return largest + sum;
}

template <class C>
double squares_of(const C* x) {
  constexpr Index lanes = 32;
  double sums[lanes];
  for (Index l = 0; l < lanes; ++l) {
    sums[l] = 0;
    for (Index i = 4 * l; i < 4 * l + 4; ++i)
      sums[l] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  for (Index half = lanes / 2; half > 0; half /= 2)
    for (Index l = 0; l < half; ++l) sums[l] += sums[l + half];
  return sums[0];
}

template <Codes codes, class C>
float scale_of(const C* x) {
  if constexpr (codes == Codes::sign)
    return sign_scale(squares_of(x));
  else
    return code_scale<codes>(largest_of(x));
}

// Packs codes as they lie in memory, the first in the lowest bits.
template <int bits>
void pack_codes(const std::int8_t* codes, unsigned char* to) {
  if constexpr (bits == 8) {
    std::memcpy(to, codes, code_block);
  } else if constexpr (bits == 1) {
    for (Index i = 0; i < code_block / 8; ++i) {
      int byte = 0;
      for (int k = 0; k < 8; ++k) byte |= (codes[8 * i + k] & 1) << k;
      to[i] = static_cast<unsigned char>(byte);
    }
  } else {
#pragma omp simd
    for (Index i = 0; i < code_block / 2; ++i)
      to[i] = static_cast<unsigned char>((codes[2 * i] & 15) | (codes[2 * i + 1] & 15) << 4);
  }
}

// `error` is null or the block's; `keep` says whether it changes.
template <Codes form, class T>
void encode_block(const T* x, unsigned char* to, Compute<T>* error, bool keep) {
  Compute<T> numbers[code_block];
  std::int8_t codes[code_block];
#pragma omp simd
  for (Index i = 0; i < code_block; ++i) numbers[i] = load(x[i]);
  for (Index i = 0; error && i < code_block; ++i) numbers[i] += error[i];
  const float scale = scale_of<form>(numbers);
  if (scale > 0) {
#pragma omp simd
    for (Index i = 0; i < code_block; ++i)
      codes[i] = static_cast<std::int8_t>(code_of_number<form>(numbers[i], scale));
  } else {
    std::memset(codes, 0, sizeof codes);
  }
  std::memcpy(to, &scale, sizeof scale);
  pack_codes<bits_of(form)>(codes, to + sizeof scale);
  for (Index i = 0; error && keep && i < code_block; ++i)
    error[i] = numbers[i] - number_of_code<form, Compute<T>>(codes[i], scale);
}

template <Codes form, class C>
void decode_block(const unsigned char* from, C* numbers) {
  float scale;
  std::memcpy(&scale, from, sizeof scale);
  constexpr int bits = bits_of(form), each = 32 / bits;
  for (Index i = 0; i < code_block; i += each) {
    std::uint32_t word;
    std::memcpy(&word, from + 4 + i * bits / 8, sizeof word);
    for (int k = 0; k < each; ++k) numbers[i + k] = number_of_code<form, C>(code_in<bits>(word, k), scale);
  }
}

template <Codes form, class T>
void encode_all(const Tensor& x, const Tensor& codes, Compute<T>* error, bool keep,
                const KernelContext& context) {
  parallel_ranges(*context.workers, x.elements() / code_block, grain, [&](Index begin, Index end) {
    for (Index b = begin; b < end; ++b)
      encode_block<form>(x.as<const T>() + b * code_block,
                         codes.as<unsigned char>() + b * code_block_bytes(bits_of(form)),
                         error ? error + b * code_block : nullptr, keep);
  });
}

template <Codes form, class T, class Op>
void encode(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<Op> op(args);
  encode_all<form, T>(op["x"], op["codes"], nullptr, false, context);
}

template <Codes form, class T>
void encode_onward(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::EncodeOnward> op(args);
  encode_all<form, T>(op["x"], op["codes"], op["error"].as<Compute<T>>(), *op["keep"].as<const double>() != 0,
                      context);
}

template <Codes form, class T, class Op>
void decode(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<Op> op(args);
  const Tensor &codes = op["codes"], &y = op["y"];
  parallel_ranges(*context.workers, y.elements() / code_block, grain, [&](Index begin, Index end) {
    for (Index b = begin; b < end; ++b) {
      Compute<T> numbers[code_block];
      decode_block<form>(codes.as<const unsigned char>() + b * code_block_bytes(bits_of(form)), numbers);
      for (Index i = 0; i < code_block; ++i) store(y.as<T>()[b * code_block + i], numbers[i]);
    }
  });
}

template <Codes form, class T>
void sum_decoded(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SumDecoded> op(args);
  const Tensor &codes = op["codes"], &y = op["y"];
  const Index blocks = y.elements() / code_block, summands = codes.dim[0];
  parallel_ranges(*context.workers, blocks, grain, [&](Index begin, Index end) {
    for (Index b = begin; b < end; ++b) {
      Compute<T> sum[code_block], next[code_block];
      const auto read = [&](Index summand, Compute<T>* to) {
        decode_block<form>(
            codes.as<const unsigned char>() + (summand * blocks + b) * code_block_bytes(bits_of(form)), to);
      };
      read(0, sum);
      for (Index s = 1; s < summands; ++s) {
        read(s, next);
        for (Index i = 0; i < code_block; ++i) sum[i] += next[i];
      }
      for (Index i = 0; i < code_block; ++i) store(y.as<T>()[b * code_block + i], sum[i]);
    }
  });
}

// `numbers` is the type of the operand that is not codes.
template <class Choice>
Kernel choose_coded(std::int64_t bits, DType numbers, Choice choice) {
  return choose_value(numbers, [&]<class T>() -> Kernel {
    return bits == 8   ? choice.template operator()<Codes::int8, T>()
           : bits == 4 ? choice.template operator()<Codes::int4, T>()
                       : choice.template operator()<Codes::sign, T>();
  });
}

Kernel select_encode(const OpShape& shape) {
  const ShapeOf<ops::Encode> s(shape);
  return choose_coded(s.integer("bits"), s["x"].dtype,
                      []<Codes form, class T>() -> Kernel { return encode<form, T, ops::Encode>; });
}
Kernel select_onward(const OpShape& shape) {
  const ShapeOf<ops::EncodeOnward> s(shape);
  return choose_coded(s.integer("bits"), s["x"].dtype,
                      []<Codes form, class T>() -> Kernel { return encode_onward<form, T>; });
}
Kernel select_decode(const OpShape& shape) {
  const ShapeOf<ops::Decode> s(shape);
  return choose_coded(s.integer("bits"), s["y"].dtype,
                      []<Codes form, class T>() -> Kernel { return decode<form, T, ops::Decode>; });
}
Kernel select_sum_decoded(const OpShape& shape) {
  const ShapeOf<ops::SumDecoded> s(shape);
  return choose_coded(s.integer("bits"), s["y"].dtype,
                      []<Codes form, class T>() -> Kernel { return sum_decoded<form, T>; });
}
Kernel select_encode_fp8(const OpShape& shape) {
  const ShapeOf<ops::EncodeFp8> s(shape);
  return choose_value(s["x"].dtype,
                      []<class T>() -> Kernel { return encode<Codes::e4m3, T, ops::EncodeFp8>; });
}
Kernel select_decode_fp8(const OpShape& shape) {
  const ShapeOf<ops::DecodeFp8> s(shape);
  return choose_value(s["y"].dtype,
                      []<class T>() -> Kernel { return decode<Codes::e4m3, T, ops::DecodeFp8>; });
}

}  // namespace

std::vector<KernelDef> coded_kernels();
std::vector<KernelDef> coded_kernels() {
  return {{ops::Encode::kind, select_encode},        {ops::EncodeOnward::kind, select_onward},
          {ops::Decode::kind, select_decode},        {ops::SumDecoded::kind, select_sum_decoded},
          {ops::EncodeFp8::kind, select_encode_fp8}, {ops::DecodeFp8::kind, select_decode_fp8}};
}

}  // namespace prun::cpu::PRUN_ISA
