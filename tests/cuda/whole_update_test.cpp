#include "whole_update/cuda.hpp"

#include "optimizer/cuda.hpp"
#include "prun/eight_bits.hpp"
#include "prun/split_master.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test::whole_update_test {
namespace {

using WholeUpdates = CudaTest;

constexpr std::int64_t n = 40 * eight_bit_block;
constexpr double run_seed = 0x1.8p40, rate = 3e-2, clip = 0.3;
const TensorElements straight{7, 0, n, (std::int64_t{1} << 33) - 64, n, n, 0},
    in_runs{8, 0, n, 256, eight_bit_block, 2 * eight_bit_block, 0};

std::vector<Value> cpu_update(const char* op, std::vector<Value> operands, std::vector<Attr> attrs,
                              const TensorElements& numbers) {
  Call call{op, std::move(operands), std::move(attrs)};
  call.updates = {numbers};
  return run_on(cpu_kernels(), call, 2);
}

// A block of zeros, one of numbers far apart, and others.
template <class Gradient>
Value gradient_of_step(int step) {
  Value gradient = random_value(dtype_of<Gradient>(), {n}, static_cast<unsigned>(step));
  for (std::size_t i = 0; i < eight_bit_block; ++i) gradient.set(i, 0);
  for (std::size_t i = 0; i < eight_bit_block; ++i)
    gradient.set(eight_bit_block + i,
                 gradient[eight_bit_block + i] * std::pow(10.0, -static_cast<double>(i) / 8));
  return gradient;
}

// Four steps on both sides, which begin with zeros.
template <class Types>
void expect_adamw(const TensorElements& numbers, double keep) {
  constexpr bool split = Types::split;
  Value parameter = random_value(dtype_of<typename Types::Parameter>(), {n}, 5), master;
  if constexpr (Types::has_master) master = Value(split ? DType::u16 : DType::f32, {n});
  if constexpr (Types::has_master && !split)
    for (std::size_t i = 0; i < master.size(); ++i) master.set(i, parameter[i]);
  Value m(DType::u8, {n}), v(DType::u8, {n}), m_scale(DType::f32, {n / eight_bit_block}),
      v_scale(DType::f32, {n / eight_bit_block});
  OnDevice p(parameter), codes_m(m), codes_v(v), scales_m(m_scale), scales_v(v_scale);
  std::unique_ptr<OnDevice> w;
  if constexpr (Types::has_master) w = std::make_unique<OnDevice>(master);
  for (int step = 1; step <= 4; ++step) {
    const Value gradient = gradient_of_step<typename Types::Gradient>(step);
    OnDevice g(gradient), rates(number(rate)), steps(number(step)), clips(number(clip)), keeps(number(keep)),
        seeds(number(run_seed));
    cuda::EightBitAdamTensor<Types> tensor{p.as<typename Types::Parameter>(),
                                           nullptr,
                                           g.as<const typename Types::Gradient>(),
                                           codes_m.as<std::uint8_t>(),
                                           codes_v.as<std::uint8_t>(),
                                           scales_m.as<float>(),
                                           scales_v.as<float>(),
                                           n,
                                           0.1,
                                           0.5,
                                           numbers};
    if constexpr (Types::has_master) tensor.master = w->template as<typename Types::Master>();
    cuda::adamw_in_8_bits<Types>(tensor,
                                 {0.9, 0.95, 1e-8, rates.as<double>(), steps.as<double>(), clips.as<double>(),
                                  keeps.as<double>(), seeds.as<double>()},
                                 nullptr);
    const std::vector<Value> want =
        cpu_update("adamw",
                   {parameter, master, gradient, m, v, number(rate), number(step), number(clip), number(keep),
                    number(run_seed), m_scale, v_scale},
                   {{.f = 0.9}, {.f = 0.95}, {.f = 1e-8}, {.f = 0.1}, {.f = 0.5}}, numbers);
    parameter = want[0], master = want[1], m = want[3], v = want[4], m_scale = want[10], v_scale = want[11];
    EXPECT_EQ(p.value().bytes(), parameter.bytes()) << "step " << step;
    if constexpr (Types::has_master) {
      EXPECT_EQ(w->value().bytes(), master.bytes()) << "step " << step;
    }
    EXPECT_EQ(codes_m.value().bytes(), m.bytes()) << "step " << step;
    EXPECT_EQ(codes_v.value().bytes(), v.bytes()) << "step " << step;
    EXPECT_EQ(scales_m.value().bytes(), m_scale.bytes()) << "step " << step;
    EXPECT_EQ(scales_v.value().bytes(), v_scale.bytes()) << "step " << step;
  }
}

TEST_F(WholeUpdates, AdamWInEightBitsHasTheBitsOfTheCpu) {
  for (const TensorElements& numbers : {straight, in_runs}) {
    expect_adamw<UpdateTypes<float, void, float, float>>(numbers, 1);
    expect_adamw<UpdateTypes<bf16, void, bf16, float>>(numbers, 1);
    expect_adamw<UpdateTypes<bf16, float, float, float>>(numbers, 1);
    expect_adamw<UpdateTypes<bf16, std::uint16_t, bf16, float>>(numbers, 1);
  }
  expect_adamw<UpdateTypes<bf16, float, float, float>>(straight, 0);
}

template <class Gradient>
void expect_momentum_in_8_bits(double keep, double sign) {
  const Value parameter(DType::f32, {n});
  Value m(DType::u8, {n}), scale(DType::f32, {n / eight_bit_block}), direction(DType::f32, {n});
  OnDevice codes(m), scales(scale), along(direction);
  for (int step = 1; step <= 3; ++step) {
    const Value gradient = gradient_of_step<Gradient>(step);
    OnDevice g(gradient), clips(number(clip)), keeps(number(keep)), steps(number(step)),
        seeds(number(run_seed));
    cuda::momentum_in_8_bits<Gradient>(
        {g.as<const Gradient>(), codes.as<std::uint8_t>(), scales.as<float>(), along.as<float>(), n, in_runs},
        {0.81, 0.9, sign != 0, clips.as<double>(), keeps.as<double>(), steps.as<double>(),
         seeds.as<double>()},
        nullptr);
    const std::vector<Value> want = cpu_update("momentum",
                                               {parameter, gradient, m, direction, number(clip), number(keep),
                                                number(step), number(run_seed), scale},
                                               {{.f = 0.81}, {.f = 0.9}, {.f = sign}}, in_runs);
    m = want[2], scale = want[8];
    EXPECT_EQ(codes.value().bytes(), m.bytes()) << step;
    EXPECT_EQ(scales.value().bytes(), scale.bytes()) << step;
    EXPECT_EQ(along.value().bytes(), want[3].bytes()) << step;
  }
}

template <class Types>
void expect_momentum(double keep, double sign) {
  const Value parameter(DType::f32, {n}), gradient = gradient_of_step<typename Types::Gradient>(3);
  const Value state = random_value(dtype_of<typename Types::State>(), {n}, 4);
  OnDevice g(gradient), s(state), along(Value(dtype_of<typename Types::C>(), {n})), clips(number(clip)),
      keeps(number(keep)), steps(number(9)), seeds(number(run_seed));
  const std::vector<cuda::MomentumTensor<Types>> list = {{g.as<const typename Types::Gradient>(),
                                                          s.as<typename Types::State>(),
                                                          along.as<typename Types::C>(), n, in_runs}};
  cuda::momentum<Types>(
      list,
      {0.81, 0.9, sign != 0, clips.as<double>(), keeps.as<double>(), steps.as<double>(), seeds.as<double>()},
      nullptr);
  const std::vector<Value> want =
      cpu_update("momentum",
                 {parameter, gradient, state, Value(dtype_of<typename Types::C>(), {n}), number(clip),
                  number(keep), number(9), number(run_seed), Value()},
                 {{.f = 0.81}, {.f = 0.9}, {.f = sign}}, in_runs);
  EXPECT_EQ(s.value().bytes(), want[2].bytes());
  EXPECT_EQ(along.value().bytes(), want[3].bytes());
}

TEST_F(WholeUpdates, MomentumHasTheBitsOfTheCpu) {
  for (const auto& [keep, sign] : {std::pair{1.0, 0.0}, {1.0, 1.0}, {0.0, 0.0}}) {
    expect_momentum_in_8_bits<float>(keep, sign);
    expect_momentum_in_8_bits<bf16>(keep, sign);
    expect_momentum<UpdateTypes<double, void, double, double>>(keep, sign);
    expect_momentum<UpdateTypes<float, void, float, float>>(keep, sign);
    expect_momentum<UpdateTypes<float, void, bf16, float>>(keep, sign);
    expect_momentum<UpdateTypes<float, void, float, bf16>>(keep, sign);
    expect_momentum<UpdateTypes<float, void, bf16, bf16>>(keep, sign);
  }
}

void expect_close(const Value& got, const Value& want, double apart) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], apart * std::max(1.0, std::abs(want[i]))) << i;
}

TEST_F(WholeUpdates, AdafactorsNumbersAreThoseOfTheCpu) {
  constexpr std::int64_t batch = 3, rows = 37, columns = 70;
  const std::vector<Attr> attrs = {{.i = 1}, {.i = 1}, {.f = 1e-7}};
  const Value gradient = random_value(DType::f32, {batch, rows, columns}, 1);
  const std::vector<Value> sums = cpu("factored_squares",
                                      {gradient, number(clip), Value(DType::f32, {batch, rows}),
                                       Value(DType::f32, {batch, columns}), Value(DType::f32, {batch})},
                                      {attrs[0], attrs[1]});
  OnDevice g(gradient), clips(number(clip)), r(Value(DType::f32, {batch, rows})),
      c(Value(DType::f32, {batch, columns})), t(Value(DType::f32, {batch})),
      along(Value(DType::f32, {batch, rows, columns}));
  cuda::factored_squares<float, float>({batch, rows, columns}, g.as<const float>(), clips.as<double>(),
                                       r.as<float>(), c.as<float>(), t.as<float>(), nullptr);
  expect_close(r.value(), sums[2], 1e-6);
  expect_close(c.value(), sums[3], 1e-6);
  expect_close(t.value(), sums[4], 1e-6);
  const std::vector<Value> want = cpu("factored_direction",
                                      {gradient, number(clip), sums[2], sums[3], sums[4],
                                       Value(DType::f32, {batch, rows, columns}), number(0)},
                                      attrs);
  cuda::factored_direction<float, float>({batch, rows, columns}, g.as<const float>(), clips.as<double>(),
                                         r.as<const float>(), c.as<const float>(), t.as<const float>(), 1e-7,
                                         along.as<float>(), nullptr);
  expect_close(along.value(), want[5], 1e-5);
}

TEST_F(WholeUpdates, MeansAndFactorsAreThoseOfTheCpu) {
  const Value mean = random_value(DType::f32, {300}, 1), sum = random_value(DType::f32, {300}, 2);
  OnDevice m(mean), s(sum), steps(number(7)), keeps(number(1)), factor(number(0)), scaled(mean);
  cuda::mean_update<float>(m.as<float>(), s.as<const float>(), steps.as<double>(), keeps.as<double>(), -0.8,
                           12, 300, nullptr);
  expect_close(m.value(), cpu("mean_update", {mean, sum, number(7), number(1)}, {{.f = -0.8}, {.f = 12}})[0],
               1e-6);
  OnDevice squares(number(50)), weights(number(20)), rates(number(rate));
  cuda::adafactor_factor({squares.as<double>(), weights.as<double>(), rates.as<double>(), steps.as<double>(),
                          factor.as<double>()},
                         300, 1e-3, 1, 0.5, nullptr);
  const Value want = cpu("adafactor_factor", {number(50), number(20), number(rate), number(7), number(0)},
                         {{.f = 300}, {.f = 1e-3}, {.f = 1}, {.f = 0.5}})[4];
  expect_close(factor.value(), want, 1e-12);
  cuda::scale_by<float>(m.as<const float>(), factor.as<double>(), scaled.as<float>(), 300, nullptr);
  expect_close(scaled.value(), cpu("scale_by", {m.value(), want, mean})[2], 1e-6);
}

// What an iteration of Newton-Schulz does beside its products.
TEST_F(WholeUpdates, MixesAreRoundedOnce) {
  const Value x = random_value(DType::bf16, {1000}, 1), z = random_value(DType::f32, {1000}, 2);
  OnDevice a(x), b(z), y(x), out(z), sums(Value(DType::f64, {cuda::norms_workspace(1) / 8}));
  cuda::mix<bf16, float>(2, a.as<const bf16>(), -3, b.as<const float>(), y.as<bf16>(), 1000, nullptr);
  cuda::scale_out<bf16, float>({1000, 1, 1000}, 0.5, a.as<const bf16>(), out.as<float>(), nullptr);
  const Value mixed = y.value(), halved = out.value();
  cuda::divide_by_norms<float, bf16>({1000, 1, 1000}, b.as<const float>(), 1e-7, y.as<bf16>(),
                                     sums.as<double>(), nullptr);
  const Value divided = y.value();
  double squares = 0;
  for (std::size_t i = 0; i < 1000; ++i) squares += z[i] * z[i];
  const auto inverse = static_cast<float>(1 / std::sqrt(squares));
  for (std::size_t i = 0; i < 1000; ++i) {
    EXPECT_NEAR(mixed[i], 2 * x[i] - 3 * z[i], 0.01 * std::abs(mixed[i]) + 1e-6);
    EXPECT_EQ(halved[i], 0.5 * x[i]);
    EXPECT_EQ(static_cast<float>(divided[i]), static_cast<float>(bf16(inverse * static_cast<float>(z[i]))));
  }
}

// Three matrices that others lie between.
TEST_F(WholeUpdates, MatricesAreDividedByTheirNormsAndPutWhereTheyWere) {
  constexpr std::int64_t size = 9000, stride = 10000, count = 3;
  const cuda::MatrixRun run{size, count, stride};
  const Value x = random_value(DType::f32, {count * stride}, 2);
  OnDevice from(x), dense(Value(DType::f32, {count * size})), to(x),
      sums(Value(DType::f64, {cuda::norms_workspace(count) / 8}));
  cuda::divide_by_norms<float, float>(run, from.as<const float>(), 1e-7, dense.as<float>(), sums.as<double>(),
                                      nullptr);
  cuda::scale_out<float, float>(run, 0.5, dense.as<const float>(), to.as<float>(), nullptr);
  const Value divided = dense.value(), put = to.value();
  for (std::int64_t matrix = 0; matrix < count; ++matrix) {
    const auto at = static_cast<std::size_t>(matrix * stride),
               at_dense = static_cast<std::size_t>(matrix * size);
    double squares = 0;
    for (std::size_t i = 0; i < size; ++i) squares += x[at + i] * x[at + i];
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_NEAR(divided[at_dense + i], x[at + i] / std::sqrt(squares), 1e-7) << matrix << ' ' << i;
      ASSERT_EQ(put[at + i], 0.5 * divided[at_dense + i]) << matrix << ' ' << i;
    }
    for (std::size_t i = size; i < stride; ++i) ASSERT_EQ(put[at + i], x[at + i]) << matrix << ' ' << i;
  }
}

}  // namespace
}  // namespace prun::test::whole_update_test
