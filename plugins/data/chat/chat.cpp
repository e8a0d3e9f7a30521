// Implements the plugin `data.chat`: it trains on the answers of conversations.
#include "chat_data.hpp"
#include "prun/plugin.hpp"

PRUN_PLUGIN(
    data, prun::chat::ChatData, "chat", "0.1.0",
    "Conversations, of which the assistant's answers are learned",
    "token_bytes=4; document_end=between; tokenizer=tokenizer; template=template; date=date; "
    "roles=system,user,assistant,tool,other; "
    "also=sft,messages,sharegpt,conversations",
    "path      | string | required | | A file with a conversation a line (messages, ShareGPT's "
    "conversations, prompt and completion, or instruction and output), or a folder of them; compressed where "
    "the name ends in .gz or .zst\n"
    "tokenizer | string | required | | A tokenizer.json of Hugging Face, or a folder with one\n"
    "template  | string | own | | chatml, llama3, mistral or gemma, or a file; own: the tokenizer's, of "
    "chat_template.jinja or tokenizer_config.json\n"
    "date      | string | \"\" | | Day that templates get for today, as 2026-07-31; without it those that "
    "ask "
    "are refused\n"
    "between   | int    | required | 0..2147483647 | Token that stands between conversations and in none of "
    "them; "
    "data.end_of_text is the same\n"
    "learn     | choice | answers | answers,last,all | What is learned of a conversation: the assistant's "
    "answers, the "
    "last one, or all of it\n"
    "reasoning | choice | learn | learn,skip | What becomes of an answer's reasoning_content, thinking or "
    "reasoning: learned with the answer, or seen alone\n"
    "pack      | bool   | true | | Put several conversations into a sample where they fit; attention stops "
    "between them\n"
    "too_long  | choice | cut | cut,drop,refuse | What happens to a conversation longer than model.seq\n");
