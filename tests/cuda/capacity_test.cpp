#include "capacity/cuda.hpp"

#include "tests/cuda/device_value.hpp"

namespace prun::test::capacity_test {
namespace {

using Capacity = CudaTest;

const cuda::CapacityShape shapes[] = {
    {.sequences = 2, .positions = 45, .choices = 2, .experts = 8, .most = 9},
    {.sequences = 1,
     .positions = on_host ? 150 : 4096,
     .choices = 8,
     .experts = 12,
     .most = on_host ? 85 : 2400},
    {.sequences = 3, .positions = 33, .choices = 3, .experts = 5, .most = 1},
    {.sequences = 1, .positions = 33, .choices = 3, .experts = 5, .most = 33},
    {.sequences = 2, .positions = 20, .choices = 2, .experts = 4, .most = 0}};

// Each position chooses neighbours, low numbers more often.
Value drawn_choices(const cuda::CapacityShape& s) {
  std::vector<std::int64_t> index;
  for (std::int64_t i = 0; i < s.sequences * s.positions; ++i) {
    const std::int64_t first = i * 7 % 11 * (i % 3) % s.experts;
    for (std::int64_t k = 0; k < s.choices; ++k) index.push_back((first + k) % s.experts);
  }
  return integers(DType::i32, {s.sequences, s.positions, s.choices}, index);
}

Value backwards(std::int64_t positions) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < positions; ++i) order.push_back(positions - 1 - i);
  return integers(DType::i32, {positions}, order);
}

template <class C>
void expect_what_the_cpu_keeps(const cuda::CapacityShape& s, bool by_weight, bool in_order) {
  const DType type = dtype_of<C>();
  const Value index = drawn_choices(s), order = backwards(s.positions);
  Value weight = random_value(type, index.dims(), 2, 3);
  // Of few values, so that there are ties.
  for (std::size_t i = 0; i < weight.size(); ++i) weight.set(i, std::floor(weight[i]) / 4);
  const std::vector<Value> want =
      cpu("cap_choices",
          {index, by_weight ? weight : Value(), Value(DType::i32, index.dims()), in_order ? Value() : order},
          {{.i = s.most}, {.i = s.experts}});
  const OnDevice on_index(index), on_weight(weight), on_order(order);
  OnDevice kept(DType::i32, index.dims());
  const DeviceWorkspace room(cuda::cap_workspace(s));
  cuda::cap_choices<C>(on_index.as<std::int32_t>(), by_weight ? on_weight.as<C>() : nullptr,
                       in_order ? nullptr : on_order.as<std::int32_t>(), kept.as<std::int32_t>(), s,
                       room.data(), nullptr);
  EXPECT_EQ(kept.value().numbers(), want[2].numbers()) << s.positions << by_weight << in_order;
}

TEST_F(Capacity, KeepsWhatTheCpuKeeps) {
  for (const cuda::CapacityShape& s : shapes)
    for (const bool by_weight : {true, false})
      for (const bool in_order : {true, false}) {
        expect_what_the_cpu_keeps<double>(s, by_weight, in_order);
        expect_what_the_cpu_keeps<float>(s, by_weight, in_order);
      }
}

TEST_F(Capacity, CountsWhatTheCpuCounts) {
  const cuda::CapacityShape s{.sequences = 3, .positions = 150, .choices = 2, .experts = 4, .most = 0};
  std::vector<std::int64_t> kept(900), targets(450, -1);
  for (std::size_t i = 0; i < 900; ++i) kept[i] = static_cast<std::int64_t>(i * 7 % 5) - 1;
  targets[3] = targets[449] = 1;  // the sequence between them is padding
  const Value index = integers(DType::i32, {3, 150, 2}, kept),
              counted = integers(DType::i32, {3, 150}, targets), dropped(DType::f64, {1, 1}, {7});
  const OnDevice on_index(index), on_targets(counted);
  OnDevice on_dropped(dropped);
  cuda::count_dropped(on_index.as<std::int32_t>(), on_targets.as<std::int32_t>(), on_dropped.as<double>(), s,
                      nullptr);
  EXPECT_EQ(on_dropped.value().numbers(), cpu("count_dropped", {index, counted, dropped})[2].numbers());
  EXPECT_EQ(on_dropped.value()[0], 7 + 120);
}

}  // namespace
}  // namespace prun::test::capacity_test
