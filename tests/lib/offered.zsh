# offered.zsh FOLDER: for each line of its input, what zsh offers at the line's end, then an empty
# line; FOLDER holds the completion. A shell in a pseudo-terminal gets the line and a tab; every
# match that a completion function adds passes through compadd, where it is written down.
zmodload zsh/zpty
folder=$1
print -r -- '
fpath=('${(q)folder}' $fpath)
autoload -Uz compinit
compinit -D -u
compadd() {
    local -a hits
    if [[ -n ${@[(r)-[OAD]]} ]]; then
        builtin compadd "$@" # fills an array, offers nothing
        return
    fi
    builtin compadd -O hits "$@"
    print -rl -- $hits >>'${(q)folder}'/offered
    builtin compadd "$@"
}
offer() {
    zle complete-word
    zle kill-whole-line
    print offered-all
}
zle -N offer
zle -C complete-word complete-word _main_complete
bindkey "^I" offer
print set-up
' >$folder/setup
zpty shell zsh -f -i
zpty -w shell "source ${(q)folder}/setup"
zpty -r shell line '*set-up*'
while IFS= read -r typed; do
    : >$folder/offered
    zpty -n -w shell $typed$'\t'
    zpty -r shell line '*offered-all*'
    cat $folder/offered
    print
done
zpty -d shell
