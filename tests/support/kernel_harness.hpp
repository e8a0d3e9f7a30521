// Holds checks that every CPU kernel must pass whatever it computes: the same bits on any number of threads,
// and the same bits for a batch in one call as for its samples one by one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prun/sequence_order.hpp"
#include "tests/support/kernel_call.hpp"

namespace prun::test {

// Says where an operand's shard lies in the whole tensor; operands left out start at 0.
struct Start {
  std::size_t operand;
  int dim;
  std::int64_t index;
};

struct Call {
  std::string op;
  std::vector<Value> operands;
  std::vector<Attr> attrs = {};
  std::vector<Start> starts = {};
  std::int64_t layer = 0;
  std::uint32_t first = 0;                   // is KernelArgs::first
  std::vector<TensorElements> updates = {};  // is KernelArgs::updates; none: not given
};

inline double tolerance(DType type) {
  switch (type) {
    case DType::f64: return 1e-12;
    case DType::f32: return 4e-6;
    case DType::f16: return 1e-3;
    default: return 8e-3;  // bf16 keeps 8 bits
  }
}

// Says whether values of a type may be summed in another: a wider one or, for bf16, the same.
inline bool may_sum(DType value, DType sum) {
  return sum == DType::bf16 ? value == DType::bf16 : size_of(sum) >= size_of(value);
}

// Returns the tolerance for sums of values of some type, added one by one where the sums are in bf16.
inline double sum_tolerance(DType value, DType sum) {
  return sum == DType::bf16 ? 0.1 : tolerance(OpShape::statistics(value));
}

inline Value integers(DType type, std::vector<std::int64_t> dims, const std::vector<std::int64_t>& numbers) {
  Value value(type, std::move(dims));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (type == DType::i64)
      value.tensor().as<std::int64_t>()[i] = numbers[i];
    else
      value.tensor().as<std::int32_t>()[i] = static_cast<std::int32_t>(numbers[i]);
  return value;
}

inline Value number(double x) { return Value(DType::f64, {}, {x}); }

// Returns numbers from -factor to factor.
inline Value random_value(DType type, std::vector<std::int64_t> dims, unsigned seed, double factor = 1) {
  Value value = Value::random(type, std::move(dims), seed);
  for (std::size_t i = 0; i < value.size(); ++i) value.set(i, factor * value[i]);
  return value;
}

// Ranks share out sequences of `seq` positions: each has a run of them, or two that lie in zigzag.
struct SharedRuns {
  std::int64_t seq, ranks;
  bool zigzag;

  std::int64_t runs() const { return zigzag ? 2 * ranks : ranks; }
  std::int64_t rows() const { return seq / runs(); }  // of a run
  std::int64_t own() const { return seq / ranks; }    // of a rank
  std::int64_t chunks() const { return zigzag ? runs() : 0; }
  SequenceOrder order() const { return zigzag ? SequenceOrder{rows(), runs()} : SequenceOrder{}; }

  // Returns a rank's rows of [batch, seq, ...], each run behind `ahead` more, which are zeros where there are
  // none.
  Value part(const Value& whole, std::int64_t rank, std::int64_t ahead = 0) const {
    std::vector<std::int64_t> dims = whole.dims();
    dims[1] = own() / rows() * (rows() + ahead);
    Value part(whole.dtype(), dims);
    each(whole.size(), dims[0], rank, ahead, [&](std::size_t of_all, std::size_t of_part) {
      if (whole.dtype() == DType::i32)
        part.tensor().as<std::int32_t>()[of_part] = Value(whole).tensor().as<std::int32_t>()[of_all];
      else
        part.set(of_part, whole[of_all]);
    });
    return part;
  }
  // Adds such rows of a rank to those of all.
  void add(const Value& part, std::int64_t rank, std::int64_t ahead, std::vector<double>& all) const {
    each(all.size(), part.dims()[0], rank, ahead,
         [&](std::size_t of_all, std::size_t of_part) { all[of_all] += part[of_part]; });
  }

 private:
  template <class Body>
  void each(std::size_t elements, std::int64_t batch, std::int64_t rank, std::int64_t ahead,
            const Body& body) const {
    const std::int64_t width = static_cast<std::int64_t>(elements) / (batch * seq), with = rows() + ahead,
                       here = own() / rows() * with;
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < here; ++i) {
        const std::int64_t begin = order().position(rank * own() + i / with * rows()),
                           position = begin + i % with - ahead;
        for (std::int64_t e = 0; e < width && position >= 0; ++e)
          body(static_cast<std::size_t>((b * seq + position) * width + e),
               static_cast<std::size_t>((b * here + i) * width + e));
      }
  }
};

inline Kernel select_kernel(const InstructionSet& set, Call& call) {
  std::vector<Value*> operands;
  for (Value& operand : call.operands) operands.push_back(&operand);
  call.attrs = with_zeros(std::move(call.attrs));
  return find_kernel(set, call.op).select(shape_of(operands, call.attrs.data()));
}

// Returns the operands after a run on `threads` threads.
inline std::vector<Value> run_on(const InstructionSet& set, Call call, std::int32_t threads) {
  std::vector<Value*> operands;
  std::vector<Tensor> tensors;
  call.attrs = with_zeros(std::move(call.attrs));
  for (Value& operand : call.operands) operands.push_back(&operand), tensors.push_back(operand.tensor());
  tensors.resize(max_operands);  // optional ones at the end may be left out
  for (const Start& s : call.starts) tensors[s.operand].start[s.dim] = s.index;
  const KernelDef& def = find_kernel(set, call.op);
  const OpShape shape = shape_of(operands, call.attrs.data());
  const Kernel kernel = def.select(shape);
  if (!kernel) throw_error(ErrorCode::internal, call.op, " has no kernel for these types");
  const auto bytes = static_cast<std::size_t>(def.workspace ? def.workspace(shape, threads) : 0);
  constexpr std::size_t guard = 4096;
  std::vector<unsigned char> workspace(bytes + guard, 0xff);  // floats of this pattern are NaN
  TestWorkers pool(threads);
  const Workers workers = pool.workers();
  kernel({tensors.data(), call.attrs.data(), workspace.data(), call.layer,
          static_cast<std::int32_t>(operands.size()), call.first, call.updates.data(),
          call.updates.empty() ? -1 : static_cast<std::int32_t>(call.updates.size())},
         {&workers, nullptr});
  EXPECT_TRUE(std::all_of(workspace.begin() + static_cast<std::ptrdiff_t>(bytes), workspace.end(),
                          [](unsigned char c) { return c == 0xff; }))
      << call.op << " writes past its workspace";
  return call.operands;
}

// Runs on 1, 2 and 3 threads and expects the same bits.
inline std::vector<Value> run(const InstructionSet& set, const Call& call) {
  const std::vector<Value> alone = run_on(set, call, 1);
  for (std::int32_t threads : {2, 3}) {
    const std::vector<Value> together = run_on(set, call, threads);
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_EQ(alone[i].bytes(), together[i].bytes())
          << call.op << ", operand " << i << ", " << threads << " threads, " << set.name;
  }
  return alone;
}

// Runs the samples one by one, the operands that are not batched going from each to the next, and expects the
// bits of the whole batch.
inline void expect_batch_free(const InstructionSet& set, const Call& call,
                              const std::vector<std::size_t>& batched) {
  const std::vector<Value> whole = run_on(set, call, 1);
  const std::int64_t samples = call.operands[batched[0]].dims()[0];
  Call one = call;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    for (std::size_t i : batched) one.operands[i] = call.operands[i].slice(sample);
    one.operands = run_on(set, one, 2);
    for (std::size_t i : batched)
      EXPECT_EQ(one.operands[i].bytes(), whole[i].slice(sample).bytes())
          << call.op << ", operand " << i << ", sample " << sample << ", " << set.name;
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (std::find(batched.begin(), batched.end(), i) != batched.end()) continue;
    EXPECT_EQ(one.operands[i].bytes(), whole[i].bytes()) << call.op << ", operand " << i << ", " << set.name;
  }
}

// Begins the sums in these operands, together and one by one, over NaN, and expects the numbers that adding
// to zeros gives. The others of `sums` are added to zeros.
inline void expect_begins(const InstructionSet& set, Call call, const std::vector<std::size_t>& sums) {
  std::uint32_t all = 0;
  for (std::size_t i : sums) {
    all |= 1u << i;
    call.operands[i] = Value(call.operands[i].shape().dtype, call.operands[i].dims());
  }
  EXPECT_EQ(find_kernel(set, call.op).writes_first & all, all) << call.op;
  const std::vector<Value> want = run_on(set, call, 2);
  std::vector<std::uint32_t> masks = {all};
  for (std::size_t i : sums) masks.push_back(1u << i);
  for (const std::uint32_t mask : masks) {
    Call begun = call;
    begun.first = mask;
    for (std::size_t i : sums)
      for (std::size_t e = 0; (mask >> i & 1) != 0 && e < begun.operands[i].size(); ++e)
        begun.operands[i].set(e, std::nan(""));
    const std::vector<Value> got = run_on(set, begun, 2);
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (!want[i].shape().present) continue;
      EXPECT_EQ(got[i].numbers(), want[i].numbers()) << call.op << ", operand " << i << ", " << set.name;
    }
  }
}

}  // namespace prun::test
