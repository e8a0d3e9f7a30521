// Holds the products of the models that are measured on GPUs: rows of a microbatch, and the linear layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace prun::bench {

struct Layer {
  const char* name;
  std::int64_t in, out;
};

struct Model {
  std::string name;
  std::int64_t rows;
  std::vector<Layer> layers;
  std::int64_t width, vocab;
};

inline std::vector<Model> gpu_models() {
  return {
      {"GPT-2 124M",
       65536,
       {{"qkv", 768, 2304}, {"out", 768, 768}, {"up", 768, 3072}, {"down", 3072, 768}},
       768,
       50304},
      {"GPT-2 1.5B",
       16384,
       {{"qkv", 1600, 4800}, {"out", 1600, 1600}, {"up", 1600, 6400}, {"down", 6400, 1600}},
       1600,
       50304},
      {"Qwen2.5-7B",
       8192,
       {{"qkv", 3584, 4608}, {"out", 3584, 3584}, {"gate, up", 3584, 37888}, {"down", 18944, 3584}},
       3584,
       152064},
      {"Llama-3-8B",
       4096,
       {{"qkv", 4096, 6144}, {"out", 4096, 4096}, {"gate, up", 4096, 28672}, {"down", 14336, 4096}},
       4096,
       128256},
  };
}

}  // namespace prun::bench
