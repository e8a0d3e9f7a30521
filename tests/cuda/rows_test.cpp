#include "rows/cuda.hpp"

#include "bound/cuda.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test::rows_test {
namespace {

using Rows = CudaTest;

// More positions than a block has threads, and fewer; rows for all, and too few.
const cuda::RowsShape shapes[] = {
    {.sequences = 2, .positions = 45, .choices = 2, .parts = 4, .rows = 30, .experts = 8},
    {.sequences = 1,
     .positions = on_host ? 600 : 4096,
     .choices = 3,
     .parts = 2,
     .rows = on_host ? 500 : 3000,
     .experts = 12},
    {.sequences = 3, .positions = 33, .choices = 3, .parts = 5, .rows = 4, .experts = 5},
    {.sequences = 1, .positions = 20, .choices = 4, .parts = 2, .rows = 20, .experts = 16}};

std::vector<Attr> attrs_of(const cuda::RowsShape& s) {
  return {{.i = s.parts}, {.i = s.rows}, {.i = s.experts}};
}

// Each position chooses neighbours, low numbers more often, and drops a choice now and then.
Value drawn_choices(const cuda::RowsShape& s) {
  std::vector<std::int64_t> index;
  for (std::int64_t i = 0; i < s.sequences * s.positions; ++i) {
    const std::int64_t first = i * 7 % 11 * (i % 3) % s.experts;
    for (std::int64_t k = 0; k < s.choices; ++k)
      index.push_back((i + k) % 6 == 0 ? -1 : (first + k) % s.experts);
  }
  return integers(DType::i32, {s.sequences, s.positions, s.choices}, index);
}

std::vector<std::int64_t> row_dims(const cuda::RowsShape& s, std::int64_t width) {
  return {s.parts, s.sequences, s.rows, width};
}

TEST_F(Rows, AreSentAsTheCpuSendsThem) {
  for (const cuda::RowsShape& s : shapes)
    for (const std::int64_t hidden : {8, 21})
      for_types([&]<class T>(std::int64_t offset) {
        const Value index = drawn_choices(s),
                    x = random_value(dtype_of<T>(), {s.sequences, s.positions, hidden}, 2);
        const std::vector<Value> want =
            cpu("send_rows", {x, index, Value(dtype_of<T>(), row_dims(s, hidden))}, attrs_of(s));
        const OnDevice on_x(x, offset), on_index(index);
        OnDevice rows(dtype_of<T>(), row_dims(s, hidden), offset);
        const DeviceWorkspace room(cuda::send_workspace(s));
        cuda::send_rows<T>(on_x.template as<T>(), on_index.as<std::int32_t>(), rows.template as<T>(), s,
                           hidden, room.data(), nullptr);
        EXPECT_EQ(rows.value().bytes(), want[2].bytes()) << s.positions << " " << hidden;
      });
}

template <class C>
void expect_choices(const cuda::RowsShape& s) {
  const Value index = drawn_choices(s), weight = random_value(dtype_of<C>(), index.dims(), 3);
  const std::vector<Value> want = cpu("send_choices",
                                      {index, weight, Value(DType::i32, row_dims(s, s.choices)),
                                       Value(dtype_of<C>(), row_dims(s, s.choices))},
                                      attrs_of(s));
  const OnDevice on_index(index), on_weight(weight);
  OnDevice row_index(DType::i32, row_dims(s, s.choices)), row_weight(dtype_of<C>(), row_dims(s, s.choices));
  const DeviceWorkspace room(cuda::send_workspace(s));
  cuda::send_choices<C>(on_index.as<std::int32_t>(), on_weight.as<C>(), row_index.as<std::int32_t>(),
                        row_weight.as<C>(), s, room.data(), nullptr);
  EXPECT_EQ(row_index.value().numbers(), want[2].numbers()) << s.positions;
  EXPECT_EQ(row_weight.value().bytes(), want[3].bytes()) << s.positions;
}

TEST_F(Rows, HaveTheChoicesThatTheCpuSends) {
  for (const cuda::RowsShape& s : shapes) {
    expect_choices<float>(s);
    expect_choices<double>(s);
  }
}

TEST_F(Rows, ReturnAsOnTheCpu) {
  for (const cuda::RowsShape& s : shapes)
    for (const std::int64_t hidden : {8, 21})
      for_types([&]<class T>(std::int64_t offset) {
        using C = cuda::Compute<T>;
        const Value index = drawn_choices(s), rows = random_value(dtype_of<T>(), row_dims(s, hidden), 4),
                    numbers = random_value(dtype_of<C>(), row_dims(s, s.choices), 5);
        const std::vector<Value> want =
            cpu("return_rows",
                {rows, index, numbers, Value(dtype_of<T>(), {s.sequences, s.positions, hidden}),
                 Value(dtype_of<C>(), index.dims())},
                attrs_of(s));
        const OnDevice on_rows(rows, offset), on_index(index), on_numbers(numbers);
        OnDevice y(dtype_of<T>(), {s.sequences, s.positions, hidden}, offset),
            own(dtype_of<C>(), index.dims());
        const DeviceWorkspace room(cuda::return_workspace(s));
        const cuda::ReturnedRows<T> of{on_rows.template as<T>(), on_numbers.template as<C>(),
                                       y.template as<T>(), own.template as<C>()};
        cuda::return_rows<T>(of, on_index.as<std::int32_t>(), s, hidden, room.data(), nullptr);
        EXPECT_EQ(y.value().bytes(), want[3].bytes()) << s.positions << " " << hidden;
        EXPECT_EQ(own.value().bytes(), want[4].bytes()) << s.positions << " " << hidden;
      });
}

TEST_F(Rows, AreCountedAsOnTheCpu) {
  for (const cuda::RowsShape& s : shapes) {
    const Value index = drawn_choices(s), needed(DType::f64, {1, 2}, {0.5, 0});
    std::vector<Attr> attrs = attrs_of(s);
    attrs.push_back({.f = 3.5});
    const OnDevice on_index(index);
    OnDevice on_needed(needed);
    const DeviceWorkspace room(cuda::count_workspace(s));
    cuda::count_rows(on_index.as<std::int32_t>(), on_needed.as<double>(), 3.5, s, room.data(), nullptr);
    EXPECT_EQ(on_needed.value().numbers(), cpu("count_rows", {index, needed}, attrs)[1].numbers());
  }
}

TEST_F(Rows, BeyondWhatIsPlannedHaltAStep) {
  for (const double second : {1.0, 1.5}) {
    const Value needed(DType::f64, {2, 2}, {1, 1, second, 1.25});
    const OnDevice on_needed(needed);
    OnDevice halt(number(0));
    cuda::halt_beyond(on_needed.as<double>(), 2, halt.as<double>(), nullptr);
    EXPECT_EQ(halt.value()[0], second > 1.25 ? 1 : 0);
  }
}

}  // namespace
}  // namespace prun::test::rows_test
