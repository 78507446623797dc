// The views "Hits" and "Marks": places of the history in lists, each of which can be gone to.
'use strict';

/** A list of places. */
class Places {
    constructor(vscode) {
        this.vscode = vscode;
        this.places = [];
        this.changed = new vscode.EventEmitter();
        this.onDidChangeTreeData = this.changed.event;
    }

    set(places) {
        this.places = places;
        this.changed.fire();
    }

    getChildren(parent) {
        return parent ? [] : this.places;
    }

    getTreeItem(place) {
        const item = new this.vscode.TreeItem(place.label);
        item.description = place.description;
        item.tooltip = place.tooltip;
        item.contextValue = place.kind;
        if (place.position) {
            item.command = { command: 'contraflow.seek', title: 'Go there', arguments: [place.position] };
        }
        return item;
    }
}

/** The hits of some code, or the writers of some memory. */
class Hits extends Places {
    show(title, answer, expressions) {
        const hit = (each) => {
            const values = (each.values || []).map((value, at) => `${expressions[at]} = ${value}`).join(', ');
            const called = each.calledAt ? `called at ${each.calledAt}` : each.place;
            return {
                kind: 'hit',
                label: `${each.position}`,
                description: values || called || '',
                tooltip: `${each.place || each.address}, thread ${each.thread}`,
                position: each.position,
                share: each.share,
            };
        };
        const count = answer.total === null ? `the last ${answer.hits.length} hits` : `${answer.total} hits`;
        this.set([{ kind: 'title', label: `${count} of ${title}` }, ...answer.hits.map(hit)]);
    }

    showWriters(name, answer) {
        const writer = (each) => ({
            kind: 'hit',
            label: `${each.position}`,
            description: `${each.function}${each.line ? `:${each.line}` : ''}  ${each.before} → ${each.after}`,
            tooltip: `thread ${each.thread}, ${each.address}`,
            position: each.position,
        });
        const end = answer.end ? [{ kind: 'title', label: answer.end }] : [];
        this.set([{ kind: 'title', label: `Writers of ${name}, latest first` }, ...answer.writers.map(writer), ...end]);
    }

    clear() {
        this.set([]);
    }

    /** Returns the places of the hits in the history, from 0 to 1. */
    shares() {
        return this.places.map((place) => place.share).filter((share) => share !== undefined);
    }
}

/** The positions that the user named. */
class Marks extends Places {
    show(marks) {
        this.set(marks.map(({ name, position, share }) => ({ kind: 'mark', name, label: name, description: position, position, share })));
    }
}

module.exports = { Hits, Marks };
