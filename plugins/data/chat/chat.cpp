// Implements the plugin `data.chat`: it trains on the answers of conversations.
#include "chat_data.hpp"
#include "prun/plugin.hpp"

PRUN_PLUGIN(data, prun::chat::ChatData, "chat", "0.1.0",
            "Conversations, of which the assistant's answers are trained on",
            "token_bytes=4; document_end=between; tokenizer=tokenizer; template=template; date=date; "
            "roles=system,user,assistant,tool,other; "
            "also=sft,messages,sharegpt,conversations",
            "path      | string | required | | File with one conversation per line (messages, ShareGPT's "
            "conversations, prompt and completion, or instruction and output), or a folder of such files; "
            "names that end in .gz or .zst are decompressed\n"
            "tokenizer | string | required | | Hugging Face tokenizer.json, or a folder with one\n"
            "template  | string | own | | Chat template: chatml, llama3, mistral or gemma, or a file; own: "
            "the tokenizer's, from chat_template.jinja or tokenizer_config.json\n"
            "date      | string | \"\" | | Date that templates use as today, such as 2026-07-31; empty: "
            "templates that ask for it are refused\n"
            "between   | int    | required | 0..2147483647 | Separator token between conversations, which "
            "occurs in none of them; set data.end_of_text to the same\n"
            "learn     | choice | answers | answers,last,all | Which part of a conversation is trained on: "
            "the assistant's answers, the last answer, or all of it\n"
            "reasoning | choice | learn | learn,skip | What to do with an answer's reasoning_content, "
            "thinking or reasoning: train on it, or use it as context only\n"
            "pack      | bool   | true | | Pack several conversations into a sample, with attention masked "
            "between them\n"
            "too_long  | choice | cut | cut,drop,refuse | What to do with conversations longer than "
            "model.seq: cut them, drop them, or refuse to start\n");
