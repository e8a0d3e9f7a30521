#include "documents/cuda.hpp"

#include "tests/cuda/device_value.hpp"

namespace prun::test::documents_test {
namespace {

using Documents = CudaTest;

TEST_F(Documents, StartsAsOnTheCpu) {
  std::mt19937 generator(4);
  for (const auto& [batch, seq] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 40}, {2, 256}, {2, 1000}}) {
    std::vector<std::int64_t> drawn(static_cast<std::size_t>(batch * seq));
    for (std::int64_t& token : drawn) token = static_cast<std::int64_t>(generator() % 20);
    const Value tokens = integers(DType::i32, {batch, seq}, drawn), starts(DType::i32, {batch, seq});
    for (const std::int64_t end : {7, 19, 20}) {  // the last does not occur
      const Value want = cpu("document_starts", {tokens, starts}, {{.i = end}})[1];
      const OnDevice on_device(tokens);
      OnDevice got(DType::i32, {batch, seq});
      cuda::document_starts(on_device.as<std::int32_t>(), got.as<std::int32_t>(), batch, seq, end, nullptr,
                            nullptr, nullptr);
      EXPECT_EQ(got.value().numbers(), want.numbers()) << batch << " x " << seq << ", end " << end;
    }
  }
}

TEST_F(Documents, TypesAsOnTheCpu) {
  std::mt19937 generator(5);
  for (const auto& [batch, seq] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 40}, {2, 256}, {2, 1000}}) {
    std::vector<std::int64_t> drawn(static_cast<std::size_t>(batch * seq)), backwards;
    for (std::int64_t& token : drawn) token = static_cast<std::int64_t>(generator() % 20);
    for (std::int64_t i = seq; i-- > 0;) backwards.push_back(i);
    const Value tokens = integers(DType::i32, {batch, seq}, drawn), kinds(DType::i32, {batch, seq}),
                positions = integers(DType::i32, {seq}, backwards);
    for (const std::int64_t types : {1, 3, 50})
      for (const bool in_order : {true, false}) {
        const Value want =
            cpu("token_types", {tokens, kinds, in_order ? Value() : positions}, {{.i = 7}, {.i = types}})[1];
        const OnDevice on_device(tokens), order(positions);
        OnDevice got(DType::i32, {batch, seq}), places(DType::i32, {seq});
        cuda::token_types(on_device.as<std::int32_t>(), got.as<std::int32_t>(), {batch, seq, 7, types},
                          in_order ? nullptr : order.as<std::int32_t>(), places.as<std::int32_t>(), nullptr);
        EXPECT_EQ(got.value().numbers(), want.numbers()) << batch << " x " << seq << ", " << types;
      }
  }
}

TEST_F(Documents, AheadAsOnTheCpu) {
  std::mt19937 generator(6);
  for (const auto& [batch, seq] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 40}, {2, 256}, {2, 1000}}) {
    std::vector<std::int64_t> drawn(static_cast<std::size_t>(batch * seq)), backwards;
    for (std::int64_t& token : drawn) token = static_cast<std::int64_t>(generator() % 20);
    for (std::int64_t i = seq; i-- > 0;) backwards.push_back(i);
    const Value x = integers(DType::i32, {batch, seq}, drawn), y(DType::i32, {batch, seq}),
                positions = integers(DType::i32, {seq}, backwards);
    for (const std::int64_t by : {1, 3, 2000})
      for (const bool in_order : {true, false})
        for (const bool apart : {true, false}) {
          const Value order = in_order ? Value() : positions,
                      starts = cpu("document_starts", {x, y, order}, {{.i = 7}})[1];
          const Value want = cpu("ahead", {x, y, order, apart ? starts : Value()}, {{.i = by}, {.i = -1}})[1];
          const OnDevice on_x(x), on_order(positions), on_starts(starts);
          OnDevice got(DType::i32, {batch, seq}), places(DType::i32, {seq});
          cuda::ahead(on_x.as<std::int32_t>(), got.as<std::int32_t>(), {batch, seq, by, -1},
                      apart ? on_starts.as<std::int32_t>() : nullptr,
                      in_order ? nullptr : on_order.as<std::int32_t>(), places.as<std::int32_t>(), nullptr);
          EXPECT_EQ(got.value().numbers(), want.numbers()) << batch << " x " << seq << ", " << by;
        }
  }
}

}  // namespace
}  // namespace prun::test::documents_test
