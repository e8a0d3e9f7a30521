// Every operation, type and size over real processes, compared with what a plain loop says.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "ranks.hpp"

namespace prun::test::collectives_test {
namespace {

using Bytes = std::vector<std::byte>;

// Small whole numbers: every sum of them is exact in every type.
std::int64_t value_at(int rank, std::int64_t index) { return (rank * 5 + index * 3 + index / 7) % 13; }

template <class T>
Bytes make(std::int64_t count, const std::function<std::int64_t(std::int64_t)>& value) {
  Bytes bytes(static_cast<std::size_t>(count) * sizeof(T));
  for (std::int64_t i = 0; i < count; ++i) {
    const T element = static_cast<T>(static_cast<float>(value(i)));
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &element, sizeof(T));
  }
  return bytes;
}

Bytes make(DType dtype, std::int64_t count, const std::function<std::int64_t(std::int64_t)>& value) {
  switch (dtype) {
    case DType::f64: return make<double>(count, value);
    case DType::f32: return make<float>(count, value);
    case DType::bf16: return make<bf16>(count, value);
    case DType::f16: return make<f16>(count, value);
    case DType::i32: return make<std::int32_t>(count, value);
    case DType::i64: return make<std::int64_t>(count, value);
    case DType::u8: return make<std::uint8_t>(count, value);
    case DType::u16: return make<std::uint16_t>(count, value);
  }
  return {};
}

struct Case {
  CommKind kind;
  Reduction reduction;
  DType dtype;
  std::int64_t count;
  bool in_place;
  std::string text() const {
    return std::string(name_of(kind)) + (reduction == Reduction::sum ? " sum " : " max ") + name_of(dtype) +
           " x " + std::to_string(count) + (in_place ? " in place" : "");
  }
};

// One case on one rank: input, what must come out, and where both lie.
class Trial {
 public:
  Trial(const Case& c, int rank, int size) : case_(c), rank_(rank), size_(size), root_(size / 2) {
    const bool many_in = c.kind == CommKind::reduce_scatter || c.kind == CommKind::all_to_all;
    const bool many_out = c.kind == CommKind::all_gather || c.kind == CommKind::all_to_all;
    in_ = make(c.dtype, c.count * (many_in ? size : 1), [&](std::int64_t i) { return value_at(rank, i); });
    expected_ = make(c.dtype, c.count * (many_out ? size : 1), [&](std::int64_t i) { return expected(i); });
    out_.assign(expected_.size(), std::byte{0xee});
    if (c.kind == CommKind::broadcast && rank == root_) out_ = in_;
    kept_ = in_;
    if (c.in_place) put_in_place();
  }

  CommOp op() {
    CommOp op{case_.kind, case_.reduction, case_.dtype, -1, in_.data(), out_.data(), case_.count};
    if (case_.kind == CommKind::broadcast) op.peer = root_;
    if (!case_.in_place) return op;
    const auto own = static_cast<std::size_t>(rank_ * case_.count * size_of(case_.dtype));
    if (case_.kind == CommKind::all_reduce) op.in = op.out;
    if (case_.kind == CommKind::all_gather) op.in = out_.data() + own;
    if (case_.kind == CommKind::reduce_scatter) op.out = in_.data() + own;
    result_ = static_cast<std::byte*>(op.out);
    return op;
  }

  void check() const {
    const std::byte* result = result_ ? result_ : out_.data();
    require(std::memcmp(result, expected_.data(), expected_.size()) == 0,
            case_.text() + ": wrong result on rank " + std::to_string(rank_));
    if (!case_.in_place) require(in_ == kept_, case_.text() + ": the input changed");
  }

 private:
  std::int64_t reduced(std::int64_t index) const {
    std::int64_t total = 0;
    for (int r = 0; r < size_; ++r)
      total = case_.reduction == Reduction::sum ? total + value_at(r, index)
                                                : std::max(total, value_at(r, index));
    return total;
  }

  std::int64_t expected(std::int64_t i) const {
    const std::int64_t count = case_.count;
    switch (case_.kind) {
      case CommKind::all_reduce: return reduced(i);
      case CommKind::reduce_scatter: return reduced(rank_ * count + i);
      case CommKind::all_gather: return value_at(static_cast<int>(i / count), i % count);
      case CommKind::all_to_all: return value_at(static_cast<int>(i / count), rank_ * count + i % count);
      default: return value_at(root_, i);
    }
  }

  void put_in_place() {
    const auto own = static_cast<std::size_t>(rank_ * case_.count * size_of(case_.dtype));
    if (case_.kind == CommKind::all_reduce) out_ = in_;
    if (case_.kind == CommKind::all_gather && !in_.empty())
      std::memcpy(out_.data() + own, in_.data(), in_.size());
  }

  Case case_;
  int rank_, size_, root_;
  Bytes in_, out_, expected_, kept_;
  std::byte* result_ = nullptr;
};

constexpr CommKind collective_kinds[] = {CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter,
                                         CommKind::broadcast, CommKind::all_to_all};
constexpr DType all_dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                                DType::i32, DType::i64, DType::u8,   DType::u16};

bool allowed(const Case& c) {
  const bool reduces = c.kind == CommKind::all_reduce || c.kind == CommKind::reduce_scatter;
  if (!reduces && c.reduction == Reduction::max) return false;
  return !c.in_place || reduces || c.kind == CommKind::all_gather;
}

std::vector<Case> cases(const std::vector<std::int64_t>& bytes) {
  std::vector<Case> all;
  for (const CommKind kind : collective_kinds)
    for (const Reduction reduction : {Reduction::sum, Reduction::max})
      for (const DType dtype : all_dtypes)
        for (const std::int64_t size : bytes)
          for (const bool in_place : {false, true}) {
            const std::int64_t count = size < 8 ? size : size / size_of(dtype) + 1;
            const Case c{kind, reduction, dtype, count, in_place};
            if (allowed(c)) all.push_back(c);
          }
  return all;
}

void run_cases(const Rank& rank, const std::vector<Case>& all, const PluginOptions& options) {
  TestComm comm(rank.meshes[0], rank.everyone(), rank.number, options);
  for (const Case& c : all) {
    Trial trial(c, rank.number, rank.size);
    comm.run(trial.op());
    trial.check();
  }
}

class Collectives : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Groups, Collectives, testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(Collectives, SmallSizesMatchThePlainLoop) {
  expect_ranks(GetParam(), [](const Rank& rank) { run_cases(rank, cases({0, 1, 3, 71, 1024, 5000}), {}); });
}

// Chunks far smaller than usual: many of them, and everything pipelined.
TEST_P(Collectives, LargeSizesMatchThePlainLoop) {
  expect_ranks(GetParam(), [](const Rank& rank) {
    run_cases(rank, cases({0, 1, 3, 1024, 70000}), {.chunk_kib = 4, .small_kib = 0});
  });
}

TEST_P(Collectives, MebibytesMatchThePlainLoop) {
  expect_ranks(GetParam(), [](const Rank& rank) {
    std::vector<Case> some;
    for (const Case& c : cases({(1 << 20) + 40}))
      if (c.dtype == DType::f32 && c.reduction == Reduction::sum) some.push_back(c);
    some.push_back({CommKind::all_reduce, Reduction::sum, DType::bf16, (3 << 20) + 5, true});
    run_cases(rank, some, {});
  });
}

}  // namespace
}  // namespace prun::test::collectives_test
