// Recipes drawn at random, without asking what is allowed: each either trains like one rank, or is refused
// for a reason that stands in the table below. PRUN_SEED repeats a drawing, PRUN_LONG draws 500 instead
// of 30.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "run/verify.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

constexpr const char* permitted[] = {
    "equal parts",                // a dimension that does not divide
    "is not a multiple of",       // heads and hidden, heads and key-value heads, batch
    "no strategy uses the axis",  // drawn without one
    "need at least one each",     // fewer layers than stages
    "kept in parts (zero stage",  // tied over two stages
    "in rounds of",               // interleaved, and a padded batch has fewer microbatches
};

class Drawing {
 public:
  explicit Drawing(unsigned seed) : random_(seed) {}

  std::string recipe() {
    const bool llama = flip();
    const int heads = pick({2, 4, 4, 4, 8, 8, 8, 8, 4, 3}), head_dim = pick({2, 4, 6});
    const int dp = pick({1, 2, 3, 4}), tp = pick({1, 1, 2, 2, 4}), pp = pick({1, 1, 1, 2, 2, 3});
    const int micro = pick({1, 2}), accumulate = pick({1, 2, 3, 4}), missing = flip() ? 0 : 1;
    const int global = std::max(1, micro * accumulate * dp - missing);
    std::ostringstream out;
    out << "[run]\nname = 'drawn'\nsteps = 5\nseed = " << pick({1, 2, 3}) << "\npoison = " << word(flip())
        << "\n[data]\nplugin = 'ragged'\nvocab = 23\n[model]\nplugin = '" << (llama ? "llama" : "gpt")
        << "'\nlayers = " << pick({1, 2, 3}) * (pp > 1 ? 2 : 1) << "\nhidden = " << heads * head_dim
        << "\nheads = " << heads << "\nffn = " << pick({8, 16, 16, 24, 16, 24, 8, 32, 16, 18})
        << "\nvocab = " << pick({24, 24, 24, 32, 24, 32, 24, 32, 24, 25})
        << "\nseq = " << pick({4, 8, 8, 8, 4, 8, 8, 4, 8, 6}) << "\ntied = " << word(flip());
    if (llama)
      out << "\nkv_heads = " << (flip() ? heads : heads / 2) << "\nqkv_bias = " << word(flip());
    else
      out << "\ndropout = " << (flip() ? 0.0 : 0.2);
    out << "\n[batch]\nglobal = " << global << "\nmicro = " << micro << "\npad = true\n[precision]\n"
        << "compute = 'fp64'\nstate = 'fp64'\n[device]\nthreads = 1\npin = false\n[optimizer]\nplugin = '"
        << (flip() ? "adamw" : "sgd") << "'\nlr = 1e-3\nclip = " << pick({0, 1}) << "\n";
    if (flip()) out << "[[optimizer.group]]\nmatch = '*norm*'\nfrozen = true\n";
    out << "[[observer]]\nplugin = 'jsonl'\n[mesh]\n";
    if (flip())
      out << "dp = " << dp << "\npp = " << pp << "\ntp = " << tp << "\n";
    else
      out << "tp = " << tp << "\ndp = " << dp << "\npp = " << pp << "\n";
    strategies(out, dp, tp);
    if (pp > 1) pipeline(out, accumulate % pp == 0);
    return out.str();
  }

 private:
  void strategies(std::ostringstream& out, int dp, int tp) {
    if (dp > 1 || flip()) out << "[[strategy]]\nplugin = 'data'\n";
    if (tp > 1 || flip()) out << "[[strategy]]\nplugin = 'tensor'\nsequence = " << word(flip()) << "\n";
    if (dp > 1 && pick({0, 1, 1, 1}) == 1)
      out << "[[strategy]]\nplugin = 'zero'\nstage = " << pick({1, 2, 3}) << "\n";
  }

  // Interleaved asks for whole rounds.
  void pipeline(std::ostringstream& out, bool rounds) {
    const std::string schedule = pick({"1f1b", "gpipe", rounds ? "interleaved" : "1f1b", "zb-h1", "zb-v"});
    const int chunks = schedule == "zb-v" || schedule == "interleaved" ? 2 : 1;
    out << "[[strategy]]\nplugin = 'pipeline'\nschedule = '" << schedule << "'\nchunks = " << chunks << "\n";
  }

  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[std::uniform_int_distribution<std::size_t>(0, list.size() - 1)(random_)];
  }
  bool flip() { return pick({0, 1}) == 1; }
  static const char* word(bool value) { return value ? "true" : "false"; }

  std::mt19937 random_;
};

bool is_permitted(const std::string& message) {
  for (const char* part : permitted)
    if (message.find(part) != std::string::npos) return true;
  return false;
}

TEST(Property, ARecipeTrainsLikeOneRankOrIsRefusedForAReason) {
  const char* const given = std::getenv("PRUN_SEED");
  const unsigned first =
      given ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device{}() % 1000000;
  const unsigned draws = std::getenv("PRUN_LONG") ? 500 : 30;
  std::printf("seed %u (PRUN_SEED=%u repeats)\n", first, first);
  unsigned trained = 0;
  for (unsigned i = 0; i < draws; ++i) {
    const std::string text = Drawing(first + i).recipe();
    try {
      const Recipe recipe = Recipe::parse(text, "drawn.toml", {}, plugins().catalog());
      const Verdict verdict = verify_layout(recipe, plugins().places(), 5);
      ++trained;
      ASSERT_TRUE(verdict.equal()) << "PRUN_SEED=" << first + i << "\n" << text << to_text(verdict);
    } catch (const Error& error) {
      ASSERT_TRUE(is_permitted(error.what())) << "PRUN_SEED=" << first + i << "\n" << text << error.what();
    }
  }
  std::printf("%u of %u draws trained, the others were refused for a permitted reason\n", trained, draws);
  // Seven in ten over many draws; a few may fall out worse.
  EXPECT_GE(trained * 100, draws * (draws < 100 ? 50 : 70));
}

}  // namespace
}  // namespace prun::test
