#include "support/drawn_recipe.hpp"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <random>
#include <sstream>
#include <utility>
#include <vector>

#include "support/layouts.hpp"

namespace prun::test {
namespace {

constexpr const char* permitted[] = {
    "equal parts",                   // a dimension that does not divide
    "cannot be split over",          // the same, in words of the recipe
    "is not a multiple of",          // heads and hidden, heads and key-value heads, batch
    "untie the parameter",           // gradients of a tied table that lie differently
    "no strategy uses the axis",     // drawn without one
    "need at least one each",        // fewer layers than stages
    "in rounds of",                  // interleaved, and a padded batch has fewer microbatches
    "cannot offload the gradient",   // gradients that are not complete once a step, layer after layer
    "choose a number that divides",  // microbatches side by side, and a padded batch has fewer
    "in one memory",                 // tensors in parts, which are not whole tensors to share out
    "parameters in parts too",       // on the host, where ranks keep optimizer state alone in parts
    "leave one of the two out",      // a pipeline and the breadth-first order
    "that sums all gradients",       // a position table of which every rank has the gradient alike
    "sums no gradient",              // an axis along which everything is in parts
    "shard over that axis too",      // experts that are summed over an axis that does not keep state in parts
    "more than 6 dimensions",        // blocks of blocks
    "need collectives midway",       // whole matrices, updated on the host's cores
    "does not declare it as one",    // adapters, by an optimizer of matrices alone
    "the optimizer is not elementwise",  // nor a projection that lies in two
    "edit both alike",                   // a state of a whole table that two stages hold
    "cannot be cut into",                // chunks of sequences
    "cannot have more ranks than",       // two axes beyond the groups of heads
    "let the axis divide the groups",    // an op that cannot be computed in parts, with such an axis
    "leave the setting out",             // positions sent over two axes, or one that splits no batch
    "which splits sequences",            // or where sequences are shared out
};

class Drawing {
 public:
  Drawing(unsigned seed, Scale scale) : seed_(seed), random_(seed), large_(scale == Scale::large) {
    kept_ = large_ && pick({0, 0, 1}) == 1;
  }

  std::string recipe() {
    draw_mesh();
    model();
    batch();
    rest();
    strategies();
    return out_.str();
  }

 private:
  // Sizes are odd on purpose, and rarely enough that most draws train.
  void draw_mesh() {
    const int others = large_ ? 0 : pick({0, 0, 1, 1, 2});
    dp_ = pick({1, 2, 3, 4});
    tp_ = pick({1, 1, 2, 2, 4});
    pp_ = pick({1, 1, 1, 2, 2, 3});
    while ((dp_ * tp_ * pp_ << others) > 8) {
      dp_ = pick({1, 2});
      tp_ = pick({1, 2, 4});
      pp_ = pick({1, 2});
    }
    for (int i = 0; i < others; ++i) draw_other();
  }

  // Adds an axis of two, whose strategy covers other dimensions than the built-in ones do.
  void draw_other() {
    const std::string axis(1, static_cast<char>('a' + others_.size()));
    others_.push_back({axis, pick<std::string>({"'batch'", "'ffn'", "'heads'", "'vocab'", "'seq'",
                                                "'heads', 'vocab'", "'vocab', 'ffn'", "'ffn', 'seq'"})});
    if (others_.back().dims == "'batch'") data_ranks_ *= 2;
  }

  void model() {
    const bool llama = flip();
    const int heads = pick({2, 4, 4, 4, 8, 8, 8, 8, 4, 3}),
              head_dim = pick({2, 4, 6}) * times(kept_ ? 2 : 16);
    out_ << "[model]\nplugin = '" << (llama ? "llama" : "gpt")
         << "'\nlayers = " << (large_ ? pick({1, 2}) : pick({1, 2, 3})) * (pp_ > 1 ? 2 : 1)
         << "\nhidden = " << heads * head_dim << "\nheads = " << heads << "\nffn = "
         << (large_ ? large_ffn(heads * head_dim) : pick({8, 16, 16, 24, 16, 24, 8, 32, 16, 18}))
         << "\nvocab = " << pick({24, 24, 24, 32, 24, 32, 24, 32, 24, 25}) * times(16)
         << "\nseq = " << pick({4, 8, 8, 8, 4, 8, 8, 4, 8, 6}) * times(kept_ ? 64 : 1)
         << "\ntied = " << word(flip());
    if (llama)
      out_ << "\nkv_heads = " << (flip() ? heads : heads / 2) << "\nqkv_bias = " << word(flip());
    else
      out_ << "\ndropout = " << (flip() ? 0.0 : 0.2);
  }

  // Returns as much for each of the ranks that share it, whatever the width: 6.4 M weights in a matrix and
  // more.
  int large_ffn(int hidden) {
    return kept_ ? pick({16, 24, 32}) * 32 * tp_ : pick({8, 9, 10, 12}) * tp_ * (800'000 / hidden);
  }

  // Draws batches, of which not every one is full.
  void batch() {
    const int micro = pick({1, 2}) * times(kept_ ? 8 : 1), missing = flip() ? 0 : 1;
    accumulate_ = kept_ ? pick({1, 2}) : pick({1, 2, 3, 4});
    out_ << "\n[batch]\nglobal = " << std::max(1, micro * accumulate_ * dp_ * data_ranks_ - missing)
         << "\nmicro = " << micro << "\npad = true\n"
         << order();
  }

  // Draws the order of the microbatches.
  std::string order() const {
    if (large_ || accumulate_ == 1 || pp_ > 1) return "";
    if (seed_ % 2 == 0) return "order = 'breadth_first'\n";
    return "interleave = " + std::to_string(accumulate_ == 4 && seed_ % 4 == 1 ? 2 : accumulate_) + "\n";
  }

  // Draws how much travels together, whatever else is drawn.
  std::string bucket_bytes() const {
    constexpr const char* sizes[] = {"", "\nbucket_bytes = '0B'", "\nbucket_bytes = '4KiB'",
                                     "\nbucket_bytes = '1GiB'"};
    return large_ ? "" : sizes[seed_ % 4];
  }

  void rest() {
    const std::string compute = large_ ? "fp32" : pick<std::string>({"fp64", "fp64", "fp32", "bf16"});
    out_ << "[precision]\ncompute = '" << compute << "'\nstate = '" << (compute == "fp64" ? "fp64" : "fp32")
         << "'\n[run]\nname = 'drawn'\nsteps = " << (large_ ? 2 : 5) << "\nseed = " << pick({1, 2, 3})
         << "\npoison = " << word(!large_ && flip()) << bucket_bytes()
         << "\n[data]\nplugin = 'ragged'\nvocab = 23\n"
         << "[device]\nplugin = 'cpu'\nthreads = 1\npin = false\n[optimizer]\nplugin = '"
         << optimizer(flip() ? "adamw" : "sgd", compute == "fp64") << "'\nlr = 1e-3\nclip = " << pick({0, 1})
         << "\n";
    if (flip()) out_ << "[[optimizer.group]]\nmatch = '*norm*'\nfrozen = true\n";
    if (whole_) out_ << "[[optimizer.group]]\nmatch = '*'\nof = 'others'\nplugin = 'adamw'\n";
    out_ << "[[observer]]\nplugin = 'jsonl'\n[mesh]\n";
    std::vector<std::pair<std::string, int>> axes = {{"dp", dp_}, {"pp", pp_}, {"tp", tp_}};
    for (const Other& other : others_) axes.push_back({other.axis, 2});
    std::shuffle(axes.begin(), axes.end(), random_);
    for (const auto& [name, extent] : axes) out_ << name << " = " << extent << "\n";
  }

  // Half of the recipes in fp64 have rules of whole tensors, whatever else is drawn.
  std::string optimizer(const char* otherwise, bool exact) {
    if (!exact || seed_ % 2 == 0) return otherwise;
    const std::string name = seed_ / 2 % 2 == 0 ? "muon" : "adafactor";
    whole_ = name == "muon";
    return name;
  }

  void strategies() {
    const bool others_first = flip();
    if (others_first) others();
    built_in();
    if (!others_first) others();
  }

  void others() {
    for (const Other& other : others_) {
      out_ << "[[strategy]]\naxis = '" << other.axis << "'\n";
      if (other.dims == "'batch'")
        out_ << "plugin = 'data'\n";
      else
        out_ << "plugin = 'spread'\ndims = [" << other.dims << "]\n";
    }
  }

  void built_in() {
    if (dp_ > 1 || flip()) out_ << "[[strategy]]\nplugin = 'data'\n";
    if (tp_ > 1 || flip()) out_ << "[[strategy]]\nplugin = 'tensor'\nsequence = " << word(flip()) << "\n";
    if (dp_ > 1 && pick({0, 1, 1, 1}) == 1) {
      const int stage = pick({1, 2, 3});
      out_ << "[[strategy]]\nplugin = 'zero'\nstage = " << stage << "\nreduce = '"
           << (stage != 2 && flip() ? "step" : "microbatch") << "'\n";
    }
    recompute();
    if (pp_ > 1) pipeline();
    if (!large_ && seed_ % 3 == 0) out_ << drawn_offload(seed_);
  }

  void recompute() {
    switch (pick({0, 0, 1, 2})) {
      case 1: out_ << "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n"; break;
      case 2:
        out_ << "[[strategy]]\nplugin = 'recompute'\nmode = 'selective'\nops = ['attention', 'linear']\n";
        break;
    }
  }

  // The schedule `interleaved` needs whole rounds.
  void pipeline() {
    const std::string schedule = pick<std::string>(
        {"1f1b", "gpipe", accumulate_ % pp_ == 0 ? "interleaved" : "1f1b", "zb-h1", "zb-v"});
    const int chunks = schedule == "interleaved" ? pick({2, 2, 3}) : schedule == "zb-v" ? 2 : 1;
    out_ << "[[strategy]]\nplugin = 'pipeline'\nschedule = '" << schedule << "'\nchunks = " << chunks << "\n";
  }

  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[std::uniform_int_distribution<std::size_t>(0, list.size() - 1)(random_)];
  }
  bool flip() { return pick({0, 1}) == 1; }
  int times(int factor) const { return large_ ? factor : 1; }
  static const char* word(bool value) { return value ? "true" : "false"; }

  const unsigned seed_;
  std::mt19937 random_;
  bool large_;
  bool whole_ = false;  // says that matrices are updated by another rule than the rest
  bool kept_ = false;   // says that tensors kept for backward make it large, not the weights
  int dp_ = 1, tp_ = 1, pp_ = 1, accumulate_ = 1;
  struct Other {
    std::string axis, dims;
  };
  std::vector<Other> others_;
  int data_ranks_ = 1;  // counts data-parallel ranks among them
  std::ostringstream out_;
};

}  // namespace

unsigned first_seed() {
  if (const char* const given = std::getenv("PRUN_SEED"))
    return static_cast<unsigned>(std::strtoul(given, nullptr, 10));
  return std::getenv("PRUN_LONG") && !std::getenv("CI") ? std::random_device{}() % 1000000 : 1;
}

std::string drawn_offload(unsigned seed) {
  const auto flip = [&](unsigned period) { return seed / period % 2 == 1; };
  const bool parameters = flip(3), gradients = flip(6), activations = flip(9), drives = flip(12);
  const std::string others = drives && flip(5) ? "nvme" : "host",
                    with_device = "device:40, " + others + ":60",
                    all = drives ? "device:20, host:50, nvme:30" : "device:40, host:60",
                    state = drives ? "nvme" : "host";
  std::string text = "[[strategy]]\nplugin = 'offload'\n";
  const auto lies = [&](const char* what, const std::string& where) {
    text += std::string(what) + " = '" + where + "'\n";
  };
  lies("optimizer", flip(7) ? all : state);
  if (parameters) lies("parameters", seed / 11 % 3 == 1 ? with_device : others);
  if (gradients) lies("gradients", seed / 13 % 3 == 0 ? others : seed / 13 % 3 == 1 ? with_device : all);
  if (activations) lies("activations", flip(4) ? all : others);
  if (flip(13)) lies("tile", "tensor");
  if (!drives && !parameters && !gradients && flip(24)) text += "update = 'device'\n";
  return text + (drives ? drive_in("/tmp") : "");
}

std::string drawn_recipe(unsigned seed, Scale scale) { return Drawing(seed, scale).recipe(); }

std::string drawn_exchanges(unsigned seed, std::string text) {
  const auto flip = [&](unsigned period) { return seed / period % 2 == 1; };
  const auto replace = [&](const std::string& from, const std::string& to) {
    if (const std::size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  };
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  replace("compute = 'bf16'", "compute = 'fp32'");  // the ops' kernels take no other types
  if (!flip(3)) replace("[mesh]\n", "[mesh]\nc = 2\n");
  const bool both = has("plugin = 'data'") && !flip(3);
  if (both && flip(1)) replace("plugin = 'zero'\n", "plugin = 'zero'\naxis = ['c', 'dp']\n");
  if (!flip(3)) text += "[[strategy]]\nplugin = 'spread'\naxis = 'c'\ndims = ['seq']\nops = ['heads']\n";
  const bool experts = flip(2);
  if (experts && has("dp = "))
    text += "[[strategy]]\nplugin = 'spread'\naxis = 'dp'\ndims = []\nweights = ['experts']\n";
  text += "[[strategy]]\nplugin = 'mixture'\n";
  for (const auto& [option, period] : {std::pair{"shrink", 4u}, {"fold", 5u}, {"pick", 6u}})
    if (flip(period)) text += std::string(option) + " = true\n";
  if (experts) text += "experts = 12\n";
  return text + "[plugins]\nops = ['mixture']\n";
}

std::string drawn_family(unsigned seed, std::string text) {
  const auto cut = [&](const std::string& from) {
    if (const std::size_t at = text.find(from); at != std::string::npos)
      text.erase(at, text.find('\n', at) + 1 - at);
  };
  constexpr const char* families[] = {"gemma3", "olmo2", "qwen3", "mistral", "phi3", "llama", "deepseek3"};
  const std::string family = families[seed % std::size(families)];
  cut("plugin = 'gpt'");
  cut("plugin = 'llama'");
  cut("dropout = ");
  if (family != "llama") cut("qkv_bias = ");
  std::string model = "[model]\nplugin = 'llama'\nfamily = '" + family + "'\nrope_base = 100\n";
  const unsigned by = seed / std::size(families);
  constexpr const char* windows[] = {"", "window = 3\n",
                                     "window = 3\nfull_every = 2\nrope_base_window = 10\n",
                                     "window = 2\nwindow_from = 1\n", "window = 40\nfull_every = 3\n"};
  constexpr const char* scalings[] = {"", "rope_factor = 4\nrope_scaling = 'linear'\n",
                                      "rope_factor = 4\nrope_scaling = 'yarn'\nrope_original = 8\n"
                                      "rope_attention = 1.2\n"};
  model += windows[by % std::size(windows)];
  model += scalings[by % std::size(scalings)];
  if (family == "deepseek3") {
    // The gradient of queries whose scores are all but alike is what rounding leaves, except in fp64.
    for (const char* key : {"kv_heads = ", "head_dim = ", "compute = ", "state = "}) cut(key);
    text.replace(text.find("[precision]\n"), 12, "[precision]\ncompute = 'fp64'\nstate = 'fp64'\n");
    model += "latent = 6\nhead_dim = 6\nrope_head_dim = 4\nrope_mscale = 0.7\n";
    model += by % 2 == 1 ? "query_latent = 10\nvalue_dim = 6\n" : "value_dim = 4\nrope_interleave = false\n";
  } else if (by % 2 == 1) {
    model += "query_scalar = 5\n";
  }
  if (by % 4 == 2) model += "score_softcap = 2\nlogit_softcap = 3\n";
  text.replace(text.find("[model]\n"), 8, model);
  // Gains of queries may have gradients of rounding alone, along which AdamW would step as far as elsewhere.
  if (text.find("plugin = 'sgd'") == std::string::npos) text.insert(text.find("lr = 1e-3\n"), "eps = 1e-3\n");
  return text;
}

namespace {

// Returns the recipe with sequences shared out over one more axis.
std::string drawn_in_parts(unsigned seed, std::string text) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    if (const std::size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  };
  replace("seq = 6", "seq = 12");
  replace("seq = 4", "seq = 16");
  replace("[mesh]\n", "[mesh]\ncp = 2\n");
  return text + "[[strategy]]\nplugin = 'context'\nbalance = '" + (seed / 3 % 2 == 1 ? "none" : "zigzag") +
         "'\n";
}

}  // namespace

std::string drawn_masked(unsigned seed, std::string text) {
  const auto flip = [&](unsigned period) { return seed / period % 2 == 1; };
  const auto replace = [&](const std::string& from, const std::string& to) {
    if (const std::size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  };
  const auto cut = [&](const std::string& from) {
    if (const std::size_t at = text.find(from); at != std::string::npos)
      text.erase(at, text.find('\n', at) + 1 - at);
  };
  for (const char* key : {"plugin = 'gpt'", "plugin = 'llama'",
                          "tied = ", "kv_heads = ", "qkv_bias = ", "compute = ", "state = "})
    cut(key);
  replace("[precision]\n", "[precision]\ncompute = 'fp64'\nstate = 'fp64'\n");
  replace("[model]\n", std::string("[model]\nplugin = 'bert'\nseparator = 4\ntypes = ") +
                           (flip(1) ? "2" : "3") + "\nactivation = '" + (flip(2) ? "gelu" : "gelu_tanh") +
                           "'\n");
  replace("vocab = 23\n", "vocab = 23\nmask = 0.9\nmask_token = 22\nmask_never = [4]\n");
  // The keys' bias has a gradient of rounding alone, along which other rules would step as far as elsewhere.
  replace("plugin = 'adafactor'\n", "plugin = 'sgd'\n");
  replace("of = 'others'\nplugin = 'adamw'\n", "of = 'others'\nplugin = 'adamw'\neps = 1e-3\n");
  replace("plugin = 'adamw'\nlr = 1e-3\n", "plugin = 'adamw'\neps = 1e-3\nlr = 1e-3\n");
  return seed % 3 == 0 ? drawn_in_parts(seed, std::move(text)) : text;
}

std::string drawn_relay(unsigned seed, std::string text) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    if (const std::size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  };
  const auto cut = [&](const std::string& from) {
    if (const std::size_t at = text.find(from); at != std::string::npos)
      text.erase(at, text.find('\n', at) + 1 - at);
  };
  for (const char* key :
       {"plugin = 'gpt'", "plugin = 'llama'", "kv_heads = ", "qkv_bias = ", "compute = ", "state = "})
    cut(key);
  replace("[precision]\n", "[precision]\ncompute = 'fp64'\nstate = 'fp64'\n");
  replace("[model]\n", "[model]\nplugin = 'relay'\n");
  return seed % 3 == 0 ? drawn_in_parts(3, std::move(text)) : text;  // one of its weights goes by position
}

std::string drawn_spans(unsigned seed, std::string text) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    if (const std::size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  };
  const auto cut = [&](const std::string& from) {
    if (const std::size_t at = text.find(from); at != std::string::npos)
      text.erase(at, text.find('\n', at) + 1 - at);
  };
  for (const char* key : {"plugin = 'gpt'", "plugin = 'llama'",
                          "tied = ", "kv_heads = ", "qkv_bias = ", "compute = ", "state = ", "seq = "})
    cut(key);
  replace("[precision]\n", "[precision]\ncompute = 'fp64'\nstate = 'fp64'\n");
  const bool longer = seed % 2 == 1;
  replace("[model]\n",
          std::string("[model]\nplugin = 't5'\nhead_dim = 4\nbuckets = 8\ndistance = 9\nseq = ") +
              (longer ? "24\ninputs = 15" : "17\ninputs = 11") +
              "\ndecoder_layers = " + std::to_string(1 + seed / 2 % 3) + "\n");
  replace("vocab = 23\n", "vocab = 20\nspans = 0.3\nspan_length = 2\nspan_token = 23\n");
  return text;
}

std::string drawn_adapters(unsigned seed, std::string text) {
  const bool llama = text.find("plugin = 'llama'") != std::string::npos;
  constexpr const char* of_llama[] = {"'all-linear'", "['q_proj', 'v_proj']",
                                      "['k_proj', 'o_proj', 'up_proj']", "['gate_proj', 'down_proj']"};
  constexpr const char* of_gpt[] = {"'all-linear'", "['c_attn']", "['attn.c_proj', 'c_fc']",
                                    "['mlp.c_proj']"};
  text += std::string("[[strategy]]\nplugin = 'lora'\nrank = ") + std::to_string(1 + seed % 4) +
          "\ntargets = " + (llama ? of_llama : of_gpt)[seed / 2 % 4] + "\n";
  if (seed % 3 == 0) text += "dropout = 0.2\n";
  if (seed % 2 == 0) text += "[[strategy]]\nplugin = 'loss'\nz = 0.01\nsmoothing = 0.1\n";
  return text;
}

std::string drawn_long(unsigned seed, std::string text) {
  const auto flip = [&](unsigned period) { return seed / period % 2 == 1; };
  const auto replace = [&](const std::string& from, const std::string& to) {
    if (const std::size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  };
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  const bool groups = seed % 4 == 3;  // only groups are drawn
  for (const char* heads : {"kv_heads = 8", "kv_heads = 4", "kv_heads = 2"})
    if (flip(1)) replace(heads, flip(5) ? "kv_heads = 1" : "kv_heads = 2");
  if (groups) {
    replace("tp = 1\n", "tp = 4\n");
    if (has("tp = 4") && !has("plugin = 'tensor'")) text += "[[strategy]]\nplugin = 'tensor'\n";
    return text;
  }
  replace("seq = 6", "seq = 12");
  replace("seq = 4", "seq = 16");
  replace("[mesh]\n", seed % 5 == 0 ? "[mesh]\ncp = 3\n" : "[mesh]\ncp = 2\n");
  if (seed % 5 == 0) replace("seq = 8", "seq = 24");
  if (flip(3)) replace("vocab = 23\n", "vocab = 23\nmask_documents = true\nend_of_text = 5\n");
  if (has("plugin = 'data'") && !flip(2))
    replace("plugin = 'zero'\n", "plugin = 'zero'\naxis = ['cp', 'dp']\n");
  return text + "[[strategy]]\nplugin = 'context'\nbalance = '" + (flip(4) ? "none" : "zigzag") + "'\n";
}

namespace {

// These routers, and the layers that have them, differ in all they can differ in.
constexpr const char* routers[] = {
    "experts = 8\nchoices = 2\nexpert_ffn = 8\nbalance = 0.02\nrouter_z = 0.001\n",
    "experts = 12\nchoices = 4\nexpert_ffn = 4\nshared_ffn = 16\nshared_gate = true\n"
    "router_normalise = false\n",
    "experts = 8\nchoices = 3\nexpert_ffn = 8\nrouter = 'sigmoid'\nrouter_bias = true\n"
    "router_bias_rate = 0.01\nrouter_groups = 4\nrouter_chosen_groups = 2\nrouter_scale = 2.5\n"
    "shared_ffn = 8\nbalance = 0.01\n",
    "experts = 12\nchoices = 3\nexpert_ffn = 8\nrouter_groups = 3\nrouter_chosen_groups = 2\n"
    "router_group_best = 1\nrouter_z = 0.01\n",
    "experts = 8\nchoices = 4\nexpert_ffn = 6\nrouter = 'sigmoid'\nrouter_bias = true\nbalance = 0.02\n"};

// Returns the axes over which experts lie, of those that the recipe has.
std::string drawn_experts_axes(unsigned by, const std::string& text) {
  std::vector<std::string> axes;
  for (const char* axis : {"dp", "tp", "cp"})
    if (text.find(std::string("\n") + axis + " = ") != std::string::npos &&
        text.find(std::string("\n") + axis + " = 1\n") == std::string::npos)
      axes.push_back(axis);
  if (axes.empty() || by % 4 == 0) return "";
  const std::string first = axes[by / 4 % axes.size()], second = axes[(by / 4 + 1) % axes.size()];
  const std::string both = "['" + first + "', '" + second + "']";
  return "[[strategy]]\nplugin = 'experts'\naxis = " +
         (by % 4 == 3 && first != second ? both : "'" + first + "'") + "\n";
}

}  // namespace

std::string drawn_experts(unsigned seed, std::string text) {
  const auto flip = [&](unsigned period) { return seed / period % 2 == 1; };
  const auto replace = [&](const std::string& from, const std::string& to) {
    if (const std::size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  };
  const auto cut = [&](const std::string& from) {
    if (const std::size_t at = text.find(from); at != std::string::npos)
      text.erase(at, text.find('\n', at) + 1 - at);
  };
  for (const char* key : {"plugin = 'gpt'", "plugin = 'llama'", "dropout = ", "compute = ", "state = "})
    cut(key);
  replace("[precision]\n", "[precision]\ncompute = 'fp64'\nstate = 'fp64'\n");
  const bool layers = text.find("\nlayers = 1\n") == std::string::npos;
  constexpr const char* capacities[] = {"", "capacity = 1\n", "capacity = 0.8\ncapacity_by = 'position'\n"};
  replace("[model]\n", std::string("[model]\nplugin = 'llama'\n") + routers[seed % std::size(routers)] +
                           capacities[seed / 3 % std::size(capacities)] +
                           (layers && flip(2) ? "dense_first = 1\n" : "") +
                           (layers && !flip(2) && flip(7) ? "sparse_every = 2\n" : ""));
  const bool context = seed % 5 == 3;
  if (context) replace("[mesh]\n", "[mesh]\ncp = 2\n");
  if (context) replace("seq = 6", "seq = 12");
  if (context && flip(2)) replace("plugin = 'zero'\n", "plugin = 'zero'\naxis = ['cp', 'dp']\n");
  const std::string axes = drawn_experts_axes(seed / 2, text);
  std::string whole = context ? "[[strategy]]\nplugin = 'context'\n" : "";
  if (context && flip(4)) whole += "balance = 'none'\n";
  if (!flip(5)) return text + whole + axes;
  const std::size_t first = text.find("[[strategy]]");
  return first == std::string::npos ? text + axes + whole : text.insert(first, axes) + whole;
}

std::string drawn_sent(unsigned seed, std::string text) {
  text = drawn_experts(seed, std::move(text));
  const std::size_t at = text.find("plugin = 'experts'\naxis = ");
  if (at == std::string::npos) return text;
  const std::size_t end = text.find('\n', text.find("axis", at)) + 1;
  return text.insert(end, "exchange = 'all_to_all'\nrows = 20\n");
}

std::string drawn_by_heads(unsigned seed, std::string text) {
  text = drawn_long(seed, std::move(text));
  const std::string context = "plugin = 'context'\n";
  if (const std::size_t at = text.find(context); at != std::string::npos)
    text.insert(at + context.size(), "method = 'ulysses'\n");
  // The axis must stand behind the axes that split heads of weights.
  for (const std::string axis : {"cp = 2\n", "cp = 3\n"})
    if (const std::size_t at = text.find("[mesh]\n" + axis); at != std::string::npos) {
      text.erase(at + 7, axis.size());
      text.insert(text.find("[[strategy]]", at), axis);
    }
  return text;
}

std::string drawn_with_states(unsigned seed, std::string text) {
  const unsigned by = seed / 2;
  if (seed % 2 == 1) text = drawn_by_heads(seed, std::move(text));
  for (const char* key : {"plugin = 'gpt'", "plugin = 'llama'",
                          "dropout = ", "qkv_bias = ", "head_dim = ", "compute = ", "state = "})
    if (const std::size_t at = text.find(key); at != std::string::npos)
      text.erase(at, text.find('\n', at) + 1 - at);
  text.replace(text.find("[precision]\n"), 12, "[precision]\ncompute = 'fp64'\nstate = 'fp64'\n");
  constexpr const char* layers[] = {"attends_every = 2\n", "attends_every = 1000\n",
                                    "attends_layers = [1]\n"};
  constexpr const char* heads[] = {"delta_key_heads = 4\ndelta_value_heads = 8\n",
                                   "delta_key_heads = 2\ndelta_value_heads = 2\n",
                                   "delta_key_heads = 8\ndelta_value_heads = 24\n"};
  text.replace(
      text.find("[model]\n"), 8,
      std::string("[model]\nplugin = 'llama'\nfamily = 'qwen3_next'\nhead_dim = 6\ndelta_key_dim = 4\n"
                  "delta_value_dim = 3\n") +
          layers[by % 3] + heads[by / 3 % 3]);
  if (text.find("plugin = 'sgd'") == std::string::npos) text.insert(text.find("lr = 1e-3\n"), "eps = 1e-3\n");
  for (std::size_t at; (at = text.find("'attention'")) != std::string::npos;)  // which may be in no layer
    text.replace(at, 11, "'delta_rule'");
  return text;
}

std::vector<std::string> drawn_numbers(const std::string& text) {
  if (text.find("\nexperts = ") != std::string::npos && text.find("choices = ") != std::string::npos)
    return text.find("\ncapacity = ") == std::string::npos
               ? std::vector<std::string>{"*.route.index"}
               : std::vector<std::string>{"*.route.index", "*.cap_choices.kept"};
  if (text.find("pick = true") == std::string::npos) return {};
  return {"block.pick.index"};
}

std::string drawn_on(std::string text, const std::string& device, const std::string& comm) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    if (const std::size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  };
  replace("plugin = 'cpu'\nthreads = 1\npin = false\n", device);
  replace("poison = true", "poison = false");
  return text + "[comm]\n" + comm;
}

std::string drawn_on_async(const std::string& text, const std::string& device, const std::string& comm) {
  return drawn_on(text, "plugin = 'cpu-async'\n" + device,
                  "default = 'meet-async'\n[comm.meet-async]\n" + comm);
}

bool is_permitted_refusal(const std::string& message) {
  return std::any_of(std::begin(permitted), std::end(permitted),
                     [&](const char* part) { return message.find(part) != std::string::npos; });
}

}  // namespace prun::test
