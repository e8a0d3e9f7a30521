// A recipe that trains next to nothing, for what is measured without training: what is measured is added.
#pragma once

namespace prun {

inline constexpr const char* smallest_recipe = R"(
[run]
name = "nothing"
steps = 1
[model]
plugin = "gpt"
layers = 1
hidden = 8
heads = 1
seq = 8
vocab = 8
[data]
plugin = "text"
path = "none"
[batch]
global = 1
micro = 1
[optimizer]
plugin = "sgd"
lr = 0.1
[device]
plugin = "cpu"
)";

}  // namespace prun
